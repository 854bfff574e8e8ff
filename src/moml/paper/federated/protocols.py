"""The federated table: its protocols, each a named set of switches, its settings, its figures."""

from dataclasses import dataclass, replace
from typing import NamedTuple

CLIENTS, HIDDEN = 50, 40  # n; both hidden layers of the MLP
K, TEST_STEPS, TEST_QUERIES = 5, 10, 10  # support; fine-tuning steps; the released test's images
ALPHA, ETA, BETA = 0.001, 0.001, 0.9  # (r): inner and fine-tuning rate, outer rate, LocalMOML's
GPUS = 4  # groups that clients are split over
SPLIT = 7  # seed of who owns what, where none is named


@dataclass(frozen=True)
class Protocol:
    """How the table is made. Every switch as it is here is `strict`, ours."""

    exact: bool = True  # curvature of the inner gradient; else first-order
    independent_hessian: bool = False  # S2 drawn apart from S1
    queries: int = K  # size of S3
    reused: bool = False  # one draw of S1 and S3 serves all H local steps of a round
    decays: bool = True  # eta / 10 at 50 % and again at 75 % of the rounds
    unscaled_restart: bool = False  # the batch that fills u keeps its pixels in 0 .. 255
    standardised: bool = True  # pixels less their mean over their deviation; else 0 .. 1
    bare_elu: bool = False  # ELU, Xavier normal, no biases; else ReLU with biases
    stratified: bool = False  # as many clients from each of 4 groups
    mean_of_steps: bool = False  # accuracy: mean over the fine-tuning steps; else after the last
    best_round: bool = False  # the best of all rounds that are scored; else the last
    few_queries: bool = False  # scored on 10 images; else on all the rest of a half of the test set
    stale: bool = False  # pFedMe's subproblem takes all its steps with one gradient
    prox: float = 15.0  # pFedMe's lambda
    prox_steps: int = 3  # its R; 3 gradients cost what a personal step with its curvature costs
    more_mnist: bool = False  # a = 168 for MNIST's training images
    by_iterations: bool = False  # "10,000" counts local steps: rounds are divided by H
    tuned: bool = (
        True  # settings, rounds and fine-tuning steps by the other half of the test images
    )
    unseen: bool = True  # clients that never took part are scored too


_RELEASED = Protocol(
    exact=False,
    queries=10,
    reused=True,
    decays=False,
    unscaled_restart=True,
    standardised=False,
    bare_elu=True,
    stratified=True,
    mean_of_steps=True,
    best_round=True,
    few_queries=True,
    stale=True,
    prox=500.0,
    prox_steps=10,
    more_mnist=True,
    tuned=False,
    unseen=False,
)
PROTOCOLS = {
    "released": _RELEASED,
    "released-scaled": replace(_RELEASED, unscaled_restart=False),
    "paper": Protocol(
        independent_hessian=True,
        standardised=False,
        stratified=True,
        few_queries=True,
        prox=100.0,
        prox_steps=50,
        by_iterations=True,
        tuned=False,
        unseen=False,
    ),
    "strict": Protocol(),
}
# What `tuned` chooses from: 6 settings of every method. alpha is the fine-tuning rate too.
_ALPHAS = (0.01, 0.03)
_PLAIN = {"alpha": _ALPHAS, "eta": (0.02, 0.03, 0.05)}
_MEMORY = {"alpha": _ALPHAS, "eta": (0.03,), "beta": (0.3, 0.5, 0.7)}
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "untrained": {"alpha": (0.003, *_ALPHAS, 0.1)},
    "local": _PLAIN,
    "fedavg": _PLAIN,
    "per-fedavg": _PLAIN,
    "localmoml": _MEMORY,
    "localmoml-carried": _MEMORY,
    "pfedme": _PLAIN,
}


class Setting(NamedTuple):
    """A data set of the table."""

    classes: int
    train: int  # a, images of a class, see `half_and_half`
    test: int
    grouped: bool = False  # its classes are the data set's groups


SETTINGS = {
    "mnist": Setting(10, 68, 34),
    "cifar10": Setting(10, 68, 34),
    "cifar100": Setting(20, 68, 15, grouped=True),
}
MORE_MNIST = 168

CONTROLS = ("untrained", "local", "fedavg")
CARRIED = "localmoml-carried"  # a memory that clients keep between rounds; not in the paper's table
METHODS = ("per-fedavg", "localmoml", CARRIED, "pfedme")

# Accuracy in percent as printed: data set -> method -> (H, clients a round) -> (mean, std).
_AXES = ((4, 4), (4, 20), (10, 4), (10, 20))
_TABLE = {
    "mnist": {
        "per-fedavg": ((91.63, 0.80), (92.19, 0.72), (94.05, 0.37), (94.81, 0.28)),
        "localmoml": ((91.62, 0.82), (92.21, 0.73), (94.17, 0.44), (94.83, 0.28)),
        "pfedme": ((91.52, 0.94), (92.08, 0.67), (94.10, 0.21), (94.36, 0.28)),
    },
    "cifar10": {
        "per-fedavg": ((63.81, 0.93), (64.44, 1.00), (66.25, 1.55), (67.10, 2.72)),
        "localmoml": ((66.16, 1.03), (66.87, 1.08), (68.33, 1.60), (68.06, 1.77)),
        "pfedme": ((63.22, 1.26), (62.68, 1.25), (64.80, 2.92), (65.66, 2.27)),
    },
    "cifar100": {
        "per-fedavg": ((50.65, 1.31), (50.92, 1.31), (52.55, 1.38), (53.37, 1.30)),
        "localmoml": ((54.00, 1.10), (54.39, 0.78), (56.35, 0.92), (56.45, 1.49)),
        "pfedme": ((49.64, 0.83), (49.25, 1.06), (51.61, 1.32), (50.95, 1.19)),
    },
}
PRINTED = {
    data: {name: dict(zip(_AXES, row, strict=True)) for name, row in rows.items()}
    for data, rows in _TABLE.items()
}
