"""Plain rivals of a table model, on arrays alone: a shrunken task mean, and a ridge per task.

Targets come as columns [rows, out]: one number, or one column a class (`columns`). The third, one
pooled model, is `fit_groups(..., kinds=["pooled"])`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

Columns = Float[np.ndarray, "rows out"]
PENALTIES = tuple(10.0**p for p in range(-2, 5))


def columns(y: Any, classes: int | None = None) -> Columns:
    """Targets as columns of floats.

    >>> columns([0, 2], classes=3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.asarray(y, float)[:, None] if classes is None else np.eye(classes)[np.asarray(y)]


def shrinkage(y: Columns, groups: Sequence[Any]) -> float:
    """How many rows the prior is worth: variance within tasks over variance between them.

    Moments of the one-way analysis of variance; infinite where tasks do not differ.
    """
    sizes = np.array([len(rows) for rows in groups], float)
    means = np.stack([y[rows].mean(axis=0) for rows in groups])
    n, tasks = sizes.sum(), len(groups)
    inside = sum(float(((y[rows] - m) ** 2).sum()) for rows, m in zip(groups, means, strict=True))
    overall = sizes @ means / n
    outside = float(sizes @ ((means - overall) ** 2).sum(axis=1))
    within = inside / max(n - tasks, 1)
    typical = (n - (sizes**2).sum() / n) / max(tasks - 1, 1)
    between = (outside / max(tasks - 1, 1) - within) / max(typical, 1e-12)
    return float(within / between) if between > 0 else np.inf


def shrunken_mean(
    y: Columns, groups: Sequence[Any], prior: Float[np.ndarray, " out"], rows: float
) -> Float[np.ndarray, "tasks out"]:
    """(sum of the known targets + rows * prior) / (their number + rows), for every task.

    >>> shrunken_mean(np.array([[3.0], [5.0]]), [[0, 1], []], np.array([1.0]), 2.0).tolist()
    [[2.5], [1.0]]
    """
    if np.isinf(rows):
        return np.tile(prior, (len(groups), 1))
    known = [np.asarray(mine, int) for mine in groups]
    return np.stack([(y[k].sum(axis=0) + rows * prior) / max(len(k) + rows, 1e-12) for k in known])


def ridge_per_task(
    x: Float[np.ndarray, "rows features"],
    y: Columns,
    groups: Sequence[Any],
    which: Int[np.ndarray, " asked"],
    asked: Float[np.ndarray, "asked features"],
    prior: Float[np.ndarray, " out"],
    penalty: float,
) -> Float[np.ndarray, "asked out"]:
    """A ridge of each task's own rows, its intercept free; the prior where no row is known."""
    out = np.tile(np.asarray(prior, float), (len(asked), 1))
    for task, rows in enumerate(groups):
        at, rows = np.flatnonzero(which == task), np.asarray(rows, int)
        if not len(rows) or not len(at):
            continue
        middle, mean = x[rows].mean(axis=0), y[rows].mean(axis=0)
        f = np.asarray(x[rows] - middle, float)
        dual = np.linalg.solve(f @ f.T + penalty * np.eye(len(f)), y[rows] - mean)
        out[at] = mean + (asked[at] - middle) @ (f.T @ dual)
    return out


def best_penalty(loss: Callable[[float], float]) -> float:
    """The penalty with the least loss, as the caller measures it on held-out tasks."""
    return min(PENALTIES, key=loss)


def probabilities(scores: Float[np.ndarray, "rows classes"]) -> Float[np.ndarray, "rows classes"]:
    """Scores of classes made probabilities: none below a thousandth, sums of one."""
    clipped = np.clip(scores, 1e-3, 1)
    return clipped / clipped.sum(axis=1, keepdims=True)
