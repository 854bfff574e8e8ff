"""The rows of the leaderboard: methods with their constants, and which models are scored."""

from typing import NamedTuple

from moml.algorithms.method import Method
from moml.methods import method
from moml.paper.leaderboard.data import CLIENTS
from moml.types import Loss, Record

ETA, BATCH = 0.005, 10
ROUND: Record = {
    "n": CLIENTS, "tasks_per_step": CLIENTS, "local_epochs": 1, "batch_size": BATCH,
    "weighted": True,
}  # fmt: skip


class Row(NamedTuple):
    """A method: its factory, constants, printed figures, and the grid of its own constant."""

    method: str
    options: Record = {}
    numbers: dict[str, float] = {}  # traced; eta is ETA unless it is here
    constant: tuple[str, tuple[float, ...]] | None = None  # tried under `strict`
    # FMNIST pat, CIFAR-100 pat, FMNIST dir, CIFAR-100 dir
    printed: tuple[float, float, float, float] | None = None


PAIRS: Record = {"curvature": "exact"}
ROWS = {
    "fedavg": Row("fedavg", printed=(80.41, 25.98, 85.85, 31.89)),
    "local": Row("local"),
    "fedprox": Row("fedprox", numbers={"prox": 0.01}, constant=("prox", (0.001, 0.01, 0.1)),
                   printed=(78.08, 25.94, 85.63, 31.99)),
    "per-fedavg": Row("per-fedavg", PAIRS, {"alpha": 0.005}, ("alpha", (0.005, 0.01, 0.02)),
                      (99.18, 56.80, 95.10, 44.28)),
    "pfedme": Row("pfedme", {"prox_steps": 5}, {"alpha": 0.01, "prox": 15.0},
                  ("prox", (5.0, 15.0, 30.0)), (99.35, 58.20, 97.25, 47.34)),
    "ditto": Row("ditto", numbers={"alpha": 0.005, "prox": 0.01},
                 constant=("prox", (0.001, 0.01, 0.1)), printed=(99.44, 67.23, 97.47, 52.87)),
    "apfl": Row("apfl", printed=(99.41, 64.26, 97.25, 46.74)),
    "fedala": Row("fedala", printed=(99.57, 67.83, 97.66, 55.92)),
    "fedper": Row("fedper", printed=(99.47, 63.53, 97.44, 49.63)),
    "fedrep": Row("fedrep", printed=(99.56, 67.56, 97.56, 52.39)),
    "fedbabu": Row("fedbabu", printed=(99.41, 66.85, 97.46, 55.02)),
    "feddbe": Row("feddbe", printed=(99.74, 73.38, 97.69, 64.39)),
    "localmoml": Row("localmoml", PAIRS, {"alpha": 0.005, "beta": 0.5},
                     ("beta", (0.3, 0.6, 0.9))),
    "localmoml-carried": Row("localmoml", PAIRS | {"carried": True},
                             {"alpha": 0.005, "beta": 0.9}, ("beta", (0.3, 0.6, 0.9))),
    "per-fedavg-head": Row("per-fedavg", PAIRS | {"private": "head"}, {"alpha": 0.005},
                           ("alpha", (0.005, 0.01, 0.02))),
}  # fmt: skip
COLUMNS = (("fmnist", "pat"), ("cifar100", "pat"), ("fmnist", "dir"), ("cifar100", "dir"))


def composed(name: str, loss: Loss, **options: object) -> Method:
    """The method of a row, for all 20 clients."""
    row = ROWS[name]
    return method(row.method, loss, **ROUND | row.options | options)


def numbers_of(name: str, chosen: Method) -> dict[str, list[float]]:
    """The numbers of a row under `pfllib`, as a grid of one setting."""
    given = {"eta": ETA} | ROWS[name].numbers
    known = chosen.hyper._asdict()
    return {key: [value] for key, value in given.items() if key in known}


def printed(name: str, dataset: str, split: str) -> float | None:
    """The accuracy that PFLlib prints, in percent; None where it prints none."""
    figures, at = ROWS[name].printed, (dataset, split)
    return None if figures is None or at not in COLUMNS else figures[COLUMNS.index(at)]
