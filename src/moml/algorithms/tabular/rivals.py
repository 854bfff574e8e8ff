"""Plain baselines of a table model, in numpy: a ridge per task, and a shrunken task mean.

Targets come as columns [rows, out]: one number, or one column per class (`columns`). The third
baseline, one pooled model, is `fit_groups(..., kinds=["pooled"])`.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

Columns = Float[np.ndarray, "rows out"]
RowLists = Sequence[ArrayLike]  # row numbers of each task
PENALTIES = tuple(10.0**p for p in range(-2, 5))


def columns(y: ArrayLike, classes: int | None = None) -> Columns:
    """Targets as columns of floats.

    >>> columns([0, 2], classes=3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.asarray(y, float)[:, None] if classes is None else np.eye(classes)[np.asarray(y)]


def row_losses(given: np.ndarray, y: np.ndarray, classes: int | None = None) -> np.ndarray:
    """Squared error of numbers [..., rows], or log-loss of probabilities [..., rows, classes].

    >>> row_losses(np.array([1.0, 2.0]), np.array([1.0, 4.0])).tolist()
    [0.0, 4.0]
    """
    if classes is None:
        return (given - y) ** 2
    at = np.broadcast_to(y, given.shape[:-1])[..., None]
    return -np.log(np.maximum(np.take_along_axis(given, at, axis=-1)[..., 0], 1e-12))


def shrinkage(y: Columns, groups: RowLists) -> float:
    """How many rows the prior is worth: variance within tasks over variance between them.

    Moments of the one-way analysis of variance; infinite where tasks do not differ.
    """
    lists = [np.asarray(rows, int) for rows in groups]
    sizes = np.array([len(rows) for rows in lists], float)
    means = np.stack([y[rows].mean(axis=0) for rows in lists])
    n, tasks = sizes.sum(), len(lists)
    inside = sum(float(((y[rows] - m) ** 2).sum()) for rows, m in zip(lists, means, strict=True))
    overall = sizes @ means / n
    outside = float(sizes @ ((means - overall) ** 2).sum(axis=1))
    within = inside / max(n - tasks, 1)
    typical = (n - (sizes**2).sum() / n) / max(tasks - 1, 1)
    between = (outside / max(tasks - 1, 1) - within) / max(typical, 1e-12)
    return float(within / between) if between > 0 else np.inf


def shrunken_mean(
    y: Columns, groups: RowLists, prior: Float[np.ndarray, " out"], rows: float
) -> Float[np.ndarray, "tasks out"]:
    """(sum of the known targets + rows * prior) / (their number + rows), for every task.

    >>> shrunken_mean(np.array([[3.0], [5.0]]), [[0, 1], []], np.array([1.0]), 2.0).tolist()
    [[2.5], [1.0]]
    """
    if np.isinf(rows):
        return np.tile(prior, (len(groups), 1))
    known = [np.asarray(some, int) for some in groups]
    return np.stack([(y[k].sum(axis=0) + rows * prior) / max(len(k) + rows, 1e-12) for k in known])


def ridge_per_task(
    x: Float[np.ndarray, "rows features"],
    y: Columns,
    groups: RowLists,
    which: Int[np.ndarray, " queries"],
    query: Float[np.ndarray, "queries features"],
    prior: Float[np.ndarray, " out"],
    penalty: float,
) -> Float[np.ndarray, "queries out"]:
    """A ridge of each task's known rows, its intercept free; the prior where there are none."""
    out = np.tile(np.asarray(prior, float), (len(query), 1))
    for task, some in enumerate(groups):
        at, rows = np.flatnonzero(which == task), np.asarray(some, int)
        if not len(rows) or not len(at):
            continue
        middle, mean = x[rows].mean(axis=0), y[rows].mean(axis=0)
        f = np.asarray(x[rows] - middle, float)
        dual = np.linalg.solve(f @ f.T + penalty * np.eye(len(f)), y[rows] - mean)
        out[at] = mean + (query[at] - middle) @ (f.T @ dual)
    return out


def best_penalty(loss: Callable[[float], float]) -> float:
    """The penalty with the least loss, as the caller measures it on held-out tasks."""
    return min(PENALTIES, key=loss)


def probabilities(scores: Float[np.ndarray, "rows classes"]) -> Float[np.ndarray, "rows classes"]:
    """Class scores as probabilities: clipped to a thousandth or more, normalised."""
    clipped = np.clip(scores, 1e-3, 1)
    return clipped / clipped.sum(axis=1, keepdims=True)


class Rivals(NamedTuple):
    """The baselines as fitted to the training tasks."""

    mean: list[float]  # of the training tasks' targets, a number or one per class
    rows: float | None  # how many rows the mean is worth; None: tasks do not differ
    penalty: float

    def answers(
        self,
        x: np.ndarray,
        y: ArrayLike,
        support: RowLists,
        which: np.ndarray,
        query: np.ndarray,
        classes: int | None,
    ) -> dict[str, np.ndarray]:
        """Predictions for rows `query` of tasks `which`, given the rows support[i] of task i."""
        mean, wide = np.array(self.mean), columns(y, classes)
        worth = math.inf if self.rows is None else self.rows
        found = {
            "per-task": ridge_per_task(x, wide, support, which, query, mean, self.penalty),
            "shrunken-mean": shrunken_mean(wide, support, mean, worth)[which],
        }
        plain = lambda given: given[:, 0] if classes is None else probabilities(given)
        return {name: plain(given) for name, given in found.items()}


def learn_rivals(
    x: np.ndarray,
    y: np.ndarray,
    support: Sequence[np.ndarray],
    query: Sequence[np.ndarray],
    classes: int | None,
) -> Rivals:
    """Fit the baselines to training tasks with known rows support[i] and others query[i]."""
    wide = columns(y, classes)
    every = [np.concatenate(both) for both in zip(support, query, strict=True)]
    mean, rows = wide[np.concatenate(every)].mean(axis=0), shrinkage(wide, every)
    flat = np.concatenate(query)
    which = np.repeat(np.arange(len(query)), [len(some) for some in query])

    def loss(penalty: float) -> float:
        given = ridge_per_task(x, wide, support, which, x[flat], mean, penalty)
        plain = given[:, 0] if classes is None else probabilities(given)
        return float(row_losses(plain, y[flat], classes).mean())

    return Rivals(mean.tolist(), rows if math.isfinite(rows) else None, best_penalty(loss))
