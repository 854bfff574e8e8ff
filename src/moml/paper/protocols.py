"""The protocols of the sine and the one-shot table, each a named set of switches."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Protocol:
    """How a table is made. Every switch off and `exact` on is `strict`, our own protocol."""

    exact: bool = True  # curvature of the inner gradient; else first-order
    independent_hessian: bool = False  # S2 is drawn independently of S1
    two_batches: bool = False  # v2's separate task batch for the memories
    through_average: bool = False  # the gradient runs through the moving average: scaled by beta
    leak: bool = False  # v2's idle memories stay in the graph
    uncoupled: bool = False  # Spider's two points use different samples
    replacement: bool = False  # tasks drawn with replacement, one by one (not Reptile's)
    eager: bool = False  # all memories filled before training
    shared_init: bool = False  # every seed starts from the one recorded network
    five_waves: bool = False  # scored on five fixed waves, the support among the scored points
    repeats: bool = False  # one-shot: samples drawn independently, a query may be in the support
    keeps_learning: bool = False  # one-shot: no reset between the episodes of a test task

    def options(self, name: str) -> dict[str, object]:
        """Options of the method `name` that these switches set."""
        if name in ("fo-maml", "moml", "reptile", "protonet"):
            return {}
        options: dict[str, object] = {
            "curvature": "exact" if self.exact else "first-order",
            "independent_hessian": self.independent_hessian,
        }
        if name in ("moml-v1", "moml-v2", "nasa"):
            options["eager"] = self.eager
        return options | ({"two_batches": self.two_batches} if name == "moml-v2" else {})


_RELEASED = Protocol(
    exact=False, through_average=True, leak=True, uncoupled=True, replacement=True, eager=True,
    shared_init=True, five_waves=True, repeats=True, keeps_learning=True,
)  # fmt: skip
PROTOCOLS = {
    "released": _RELEASED,
    "released-fresh": replace(_RELEASED, shared_init=False),
    "paper": Protocol(independent_hessian=True, two_batches=True),
    "strict": Protocol(),
}


@dataclass(frozen=True)
class Steps:
    """The step sizes of one cell."""

    eta: float
    beta: float = 1.0
    gamma: float = 1.0
