"""The rows of the leaderboard: methods with their constants, and the settings that are tried."""

from typing import NamedTuple

from moml.algorithms.method import Factory, Method
from moml.methods import factory_of
from moml.paper.leaderboard.data import CLIENTS
from moml.paper.leaderboard.prior import fedprior
from moml.types import Loss, Record

ETA, BATCH = 0.005, 10
ROUND: Record = {"local_epochs": 1, "batch_size": BATCH, "weighted": True}
# so many trainings of every method: step sizes; with a constant of its own, half of them
ETAS = {1: (ETA,), 3: (ETA, 3 * ETA, 9 * ETA), 6: tuple(ETA * 2**i for i in range(-1, 5))}


class Row(NamedTuple):
    """A method: its factory, its constants, and the figures that PFLlib prints."""

    method: str | Factory
    options: Record = {}
    numbers: dict[str, float] = {}  # traced
    follows: tuple[str, ...] = ()  # numbers that are step sizes: eta's value
    constant: tuple[str, float] | None = None  # and a second value of it, tried with six settings
    epochs: int = 1  # of fine-tuning, when a client uses the global model
    dropout: float = 0.0  # of the features in training
    # FMNIST pat, CIFAR-100 pat, FMNIST dir, CIFAR-100 dir
    printed: tuple[float, float, float, float] | None = None


PAIRS: Record = {"curvature": "exact"}
ALPHA = ("alpha",)
ROWS = {
    "fedavg": Row("fedavg", printed=(80.41, 25.98, 85.85, 31.89)),
    "fedavg-memory": Row("fedavg-memory", numbers={"beta": 0.1}, constant=("beta", 0.3)),
    "fedavg-memory-dropout": Row("fedavg-memory", numbers={"beta": 0.1}, dropout=0.5,
                                 constant=("beta", 0.3)),
    "local": Row("local"),
    "fedprox": Row("fedprox", numbers={"prox": 0.01}, constant=("prox", 0.1),
                   printed=(78.08, 25.94, 85.63, 31.99)),
    "per-fedavg": Row("per-fedavg", PAIRS, follows=ALPHA, printed=(99.18, 56.80, 95.10, 44.28)),
    "pfedme": Row("pfedme", {"prox_steps": 5}, {"alpha": 0.01, "prox": 15.0},
                  constant=("prox", 30.0), printed=(99.35, 58.20, 97.25, 47.34)),
    "ditto": Row("ditto", numbers={"prox": 0.01}, follows=ALPHA, constant=("prox", 0.1),
                 printed=(99.44, 67.23, 97.47, 52.87)),
    "apfl": Row("apfl", printed=(99.41, 64.26, 97.25, 46.74)),
    "apfl-alone": Row("apfl", {"mix": 1.0}),  # begins with clients' own models, as PFLlib's code
    "fedala": Row("fedala", printed=(99.57, 67.83, 97.66, 55.92)),
    "fedper": Row("fedper", printed=(99.47, 63.53, 97.44, 49.63)),
    "fedrep": Row("fedrep", printed=(99.56, 67.56, 97.56, 52.39)),
    "fedbabu": Row("fedbabu", epochs=10, printed=(99.41, 66.85, 97.46, 55.02)),
    "feddbe": Row("feddbe", numbers={"kappa": 50.0}, constant=("kappa", 5.0),
                  printed=(99.74, 73.38, 97.69, 64.39)),
    "localmoml": Row("localmoml", PAIRS, {"beta": 0.5}, ALPHA, ("beta", 0.9)),
    "localmoml-carried": Row("localmoml", PAIRS | {"carried": True}, {"beta": 0.9}, ALPHA,
                             ("beta", 0.5)),
    "localmoml-head": Row("localmoml", PAIRS | {"carried": True, "private": "head"},
                          {"beta": 0.5}, ALPHA, ("beta", 0.9)),
    "per-fedavg-head": Row("per-fedavg", PAIRS | {"private": "head"}, follows=ALPHA),
    "fedprior": Row(fedprior, constant=("smoothing", 0.1)),
    "fedprior-own": Row(fedprior, {"mix": 1.0}, constant=("smoothing", 0.1)),
    "fedprior-memory": Row(fedprior, {"mix": 0.5}, {"beta": 0.3, "decay": 5e-4}, dropout=0.5,
                           constant=("decay", 0.0)),
}  # fmt: skip
COLUMNS = (("fmnist", "pat"), ("cifar100", "pat"), ("fmnist", "dir"), ("cifar100", "dir"))


def composed(name: str, loss: Loss, *, n: int = CLIENTS, **options: object) -> Method:
    """The method of a row, for all clients in every round."""
    row = ROWS[name]
    given = {"n": n, "tasks_per_step": n} | ROUND | row.options | options
    return factory_of(row.method)(loss, **given)


def settings_of(name: str, chosen: Method, count: int = 1) -> list[dict[str, float]]:
    """The settings that are tried, as many for every method; the first is that of `pfllib`.

    One or three: step sizes. Six: step sizes, or half as many with two values of the method's own
    constant.
    """
    row, known = ROWS[name], chosen.hyper._asdict()
    constants: list[dict[str, float]] = [{}]
    if count == 6 and row.constant is not None:
        constants, count = [{}, dict([row.constant])], 3
    return [
        {key: value for key, value in given.items() if key in known}
        for eta in ETAS[count]
        for more in constants
        for given in [{"eta": eta} | dict.fromkeys(row.follows, eta) | row.numbers | more]
    ]


def printed(name: str, dataset: str, split: str) -> float | None:
    """The accuracy that PFLlib prints, in percent; None where it prints none."""
    figures, at = ROWS[name].printed, (dataset, split)
    return None if figures is None or at not in COLUMNS else figures[COLUMNS.index(at)]
