"""What personal models are compared with, from rows alone: a ridge per task, a shrunken mean.

Targets are columns [rows, out]: a number, or a class's indicator for each class. Penalty and
shrinking are chosen on training tasks.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

PENALTIES = tuple(10.0**power for power in range(-2, 5))
FLOORS = (0.2, 0.1, 0.05, 0.02, 0.01)  # least probability of a ridge's class, shared by all
TASKS = 200  # training tasks that choose

Columns = Float[np.ndarray, "rows out"]
Known = Sequence[tuple[Any, Any]]  # x and y of the rows that are known of each task


class Rivals(NamedTuple):
    """What was chosen on training tasks."""

    mean: list[float]  # of all rows of them, for each column
    ratio: float  # a row's variance inside a task over that of the tasks' means
    penalty: float
    floor: float = 0.0

    def shrunken(self, y: Columns) -> Float[np.ndarray, " out"]:
        """m + k / (k + r) (mean of y - m) of k rows: the best guess from targets alone."""
        k, mean = len(y), np.asarray(self.mean)
        return mean + k / (k + self.ratio) * (y.mean(axis=0) - mean) if k else mean

    def ridge(self, x: Any, y: Columns, asked: Any) -> Columns:
        """A ridge on the task's own rows; where it has none, the mean of all."""
        if not len(y):
            return np.tile(self.mean, (len(asked), 1))
        given = ridge(x, y, asked, self.penalty)
        return _probable(given, self.floor) if self.floor else given


def ridge(x: Any, y: Columns, asked: Any, penalty: float) -> Columns:
    """ȳ + (x - x̄)' F' (F F' + p I)^-1 (y - ȳ), F the known rows less their mean."""
    x, asked = np.asarray(x, float), np.asarray(asked, float)
    f, centre = x - x.mean(axis=0), y.mean(axis=0)
    dual = np.linalg.solve(f @ f.T + penalty * np.eye(len(f)), y - centre)
    return centre + (asked - x.mean(axis=0)) @ (f.T @ dual)


def _probable(given: Columns, floor: float) -> Columns:
    """Probabilities from a ridge's answers: within 0 and 1, of sum 1, all above a floor."""
    bounded = np.clip(given, 0, 1) + 1e-9
    return (1 - floor) * bounded / bounded.sum(axis=1, keepdims=True) + floor / given.shape[1]


def learn_rivals(
    x: Any, y: Columns, known: Sequence[Any], asked: Sequence[Any], classes: bool
) -> Rivals:
    """Choose on training tasks, of which the rows known[i] are known and asked[i] asked for."""
    mean = y[np.concatenate([*known, *asked])].mean(axis=0)
    sizes = np.array([len(k) + len(a) for k, a in zip(known, asked, strict=True)])
    both = [y[np.concatenate([k, a])] for k, a in zip(known, asked, strict=True)]
    ratio = _ratio(both, sizes, mean)
    some = [i for i, rows in enumerate(known) if len(rows) and len(asked[i])][:TASKS]
    answers = {
        p: [ridge(x[known[i]], y[known[i]], x[asked[i]], p) for i in some] for p in PENALTIES
    }
    wanted = np.concatenate([y[asked[i]] for i in some]) if some else y[:0]
    best = (np.inf, PENALTIES[-1], FLOORS[0] if classes else 0.0)
    for penalty, parts in answers.items() if some else ():
        for floor in FLOORS if classes else (0.0,):
            best = min(best, (_loss(np.concatenate(parts), wanted, floor), penalty, floor))
    return Rivals(mean.tolist(), ratio, best[1], best[2])


def _loss(given: Columns, wanted: Columns, floor: float) -> float:
    if not floor:
        return float(((given - wanted) ** 2).mean())
    return float(-np.log((_probable(given, floor) * wanted).sum(axis=1)).mean())


def _ratio(tasks: Sequence[Columns], sizes: np.ndarray, mean: np.ndarray) -> float:
    """The ratio of variances by the analysis of variance, for tasks of unequal sizes."""
    n, count = sizes.sum(), len(sizes)
    inside = sum(float(((y - y.mean(axis=0)) ** 2).sum()) for y in tasks) / max(n - count, 1)
    between = sum(len(y) * float(((y.mean(axis=0) - mean) ** 2).sum()) for y in tasks)
    usual = (n - (sizes**2).sum() / n) / max(count - 1, 1)
    own = (between / max(count - 1, 1) - inside) / max(usual, 1e-9)
    return float(inside / max(own, 1e-3 * inside, 1e-12))
