"""The protocols, each a named set of switches, and the printed figures they are held against."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Protocol:
    """How a table is made. Every switch off and `exact` on is `strict`, ours."""

    exact: bool = True  # curvature of the inner gradient; else first-order
    independent_hessian: bool = False  # S2 drawn apart from S1
    two_batches: bool = False  # v2's separate task batch for the memories
    through_average: bool = False  # the gradient runs through the moving average: scaled by beta
    leak: bool = False  # v2's idle memories stay in the graph
    uncoupled: bool = False  # Spider's two points see other samples
    replacement: bool = False  # tasks drawn with replacement, in turn (not Reptile's)
    eager: bool = False  # all memories filled before training
    shared_init: bool = False  # every seed starts from the one recorded network
    five_waves: bool = False  # scored on five fixed waves, the support among the scored points
    repeats: bool = False  # one-shot: samples drawn apart, so that a query may be in the support
    keeps_learning: bool = False  # one-shot: no reset between the episodes of a test task

    def options(self, name: str) -> dict[str, Any]:
        """The switches as options of the method `name`, as far as it has them."""
        if name in ("reptile", "protonet"):
            return {}
        curvature = "exact" if self.exact else "first-order"
        given: dict[str, Any] = {"curvature": curvature}
        given["independent_hessian"] = self.independent_hessian
        if name in ("moml-v1", "moml-v2", "nasa"):
            given["eager"] = self.eager
        return given | ({"two_batches": self.two_batches} if name == "moml-v2" else {})


_RELEASED = Protocol(
    exact=False,
    through_average=True,
    leak=True,
    uncoupled=True,
    replacement=True,
    eager=True,
    shared_init=True,
    five_waves=True,
    repeats=True,
    keeps_learning=True,
)
PROTOCOLS = {
    "released": _RELEASED,
    "released-fresh": replace(_RELEASED, shared_init=False),
    "paper": Protocol(independent_hessian=True, two_batches=True),
    "strict": Protocol(),
}

# Test error and milliseconds per iteration as printed: method -> K -> (mean, std, ms).
PRINTED = {
    "maml": {1: (0.889, 0.021, 1.713), 3: (0.321, 0.015, 1.729)},
    "reptile": {1: (1.212, 0.054, 1.380), 3: (1.132, 0.028, 1.430)},
    "nasa": {1: (0.361, 0.010, 17.524), 3: (0.214, 0.050, 17.608)},
    "bspiderboost": {1: (1.300, 0.104, 3.960), 3: (0.650, 0.042, 4.159)},
    "moml-v1": {1: (0.291, 0.012, 2.180), 3: (0.196, 0.068, 2.294)},
    "moml-v2": {1: (0.448, 0.012, 7.863), 3: (0.268, 0.026, 8.016)},
    "localmoml": {1: (0.462, 0.043, 2.556), 3: (0.170, 0.020, 2.624)},
}


@dataclass(frozen=True)
class Steps:
    """The step sizes of one cell."""

    eta: float
    beta: float = 1.0
    gamma: float = 1.0


# The step sizes that the released code names, for `released` and `paper`.
NAMED = {
    "maml": {1: Steps(0.001), 3: Steps(0.005)},
    "reptile": {1: Steps(0.05), 3: Steps(0.1)},
    "nasa": {1: Steps(0.05, 0.5, 0.1), 3: Steps(0.05, 0.5, 0.1)},
    "bspiderboost": {1: Steps(0.001), 3: Steps(0.001)},
    "moml-v1": {1: Steps(0.005, 0.3), 3: Steps(0.01, 0.5)},
    "moml-v2": {1: Steps(0.005, 0.1), 3: Steps(0.01, 0.1)},
    "localmoml": {1: Steps(0.005, 0.3), 3: Steps(0.01, 0.5)},
}
