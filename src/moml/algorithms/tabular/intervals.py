"""Prediction intervals from the residuals of tasks that were not learned from: conformal bounds.

Rows of one task are alike, so the tasks count, not their rows.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moml.errors import ConfigError

# known rows -> rows of residual, number of its task, and spread of the candidates' predictions
Residuals = Mapping[int, Float[np.ndarray, "_ 3"]]


class Bounds(NamedTuple):
    """A prediction's bounds are p - low s and p + high s, with s^2 = variance + spread^2."""

    low: float
    high: float
    variance: float


def bounds(residuals: Residuals, level: float) -> dict[int, Bounds]:
    """What a prediction's lower and upper bound are computed from, by number of known rows.

    The new task is as likely as any of G others to be the most extreme one. So each of the G has
    the share 1 / (G + 1), spread evenly over its rows, and as much lies beyond all residuals. With
    v the tasks' mean of squared residuals r, and d the spread of the predictions that are averaged
    for a row, a residual's score is

        max(z / u, -z / l),    z = r / sqrt(v + d^2),
        u^2 = (mean z^2 + G mean max(z, 0)^2) / (G + 1),

    with l likewise for -z, and `high` is q u, `low` q l for the quantile q = `level` of the scores:
    a row of a new task lies between with probability `level`, nearly so as u, l and v are estimated
    from the same tasks. With fewer than 1 / (1 - level) - 1 tasks q is infinite.

    >>> some = np.arange(-9.0, 10.0)
    >>> alone = np.column_stack([some, np.arange(19), np.zeros(19)])
    >>> low, high, variance = bounds({1: alone}, 0.9)[1]
    >>> round(float(low * np.sqrt(variance)), 6), round(float(high * np.sqrt(variance)), 6)
    (9.0, 9.0)
    >>> float(bounds({1: alone[:8]}, 0.9)[1].high)  # 8 tasks
    inf
    """
    if not 0 < level < 1:
        raise ConfigError(f"the interval must be between 0 and 1, such as 0.9; got {level!r}")
    if not residuals:
        raise ConfigError(
            "an interval needs a target of numbers; the target of this run is a class"
        )
    return {known: _bounds(some, level) for known, some in residuals.items()}


def _bounds(some: Float[np.ndarray, "_ 3"], level: float) -> Bounds:
    residual, task, spread = some.T
    _, task, sizes = np.unique(task, return_inverse=True, return_counts=True)
    tasks = len(sizes)
    share = 1 / ((tasks + 1) * sizes[task])
    mean = lambda values: float(share @ values) * (tasks + 1) / tasks
    variance = max(mean(residual**2), 1e-30)
    z = residual / np.sqrt(variance + spread**2)
    side = lambda z: np.sqrt((mean(z**2) + tasks * mean(np.maximum(z, 0) ** 2)) / (tasks + 1))
    high, low = max(side(z), 1e-15), max(side(-z), 1e-15)
    q = _quantile(np.maximum(z / high, -z / low), share, level)
    return Bounds(q * low, q * high, variance)


def _quantile(
    values: Float[np.ndarray, " rows"], share: Float[np.ndarray, " rows"], level: float
) -> float:
    """The least value with `level` of the shares at or below it; infinite if there is none."""
    order = np.argsort(values)
    reached = np.cumsum(share[order]) >= level - 1e-9
    return float(values[order][reached.argmax()]) if reached.any() else float("inf")


def tasks_lacking(residuals: Residuals, level: float) -> tuple[int, int] | None:
    """How many tasks finite bounds need and how many there are; None where these are enough.

    >>> tasks_lacking({1: np.column_stack([np.zeros(8), np.arange(8) // 2, np.zeros(8)])}, 0.9)
    (9, 4)
    """
    needed = int(np.ceil(1 / (1 - level) * (1 - 1e-9))) - 1
    fewest = min(len(np.unique(some[:, 1])) for some in residuals.values())
    return (needed, fewest) if fewest < needed else None


def coverage(some: Float[np.ndarray, "_ 3"], level: float, parts: int = 20) -> float | None:
    """Share of the rows of a task that lie between bounds from other tasks, mean over the tasks.

    The tasks are dealt to `parts`; the bounds for one part are those of all others. None where
    these are too few for finite bounds.

    >>> rows = np.column_stack([np.tile([-1.0, 1.0], 40), np.arange(80) // 2, np.zeros(80)])
    >>> coverage(rows, 0.9), coverage(rows[:16], 0.9)
    (1.0, None)
    """
    residual, task, spread = some.T
    _, task, sizes = np.unique(task, return_inverse=True, return_counts=True)
    inside = np.zeros(len(some))
    for part in range(min(parts, len(sizes))):
        mine = task % parts == part
        if mine.all():
            return None
        low, high, variance = _bounds(some[~mine], level)
        if not np.isfinite(high):
            return None
        z = residual[mine] / np.sqrt(variance + spread[mine] ** 2)
        inside[mine] = (-low <= z) & (z <= high)
    return float(np.mean(np.bincount(task, inside) / sizes))


def around(
    prediction: Float[np.ndarray, " rows"],
    known: Int[np.ndarray, " rows"],
    spread: Float[np.ndarray, " rows"],
    residuals: Residuals,
    level: float,
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """Lower and upper bounds of rows, by the number of known rows of each row's task."""
    found = bounds(residuals, level)
    numbers = np.array(sorted(found))
    nearest = np.maximum(np.searchsorted(numbers, known, side="right") - 1, 0)
    low, high, variance = np.array([found[n] for n in numbers.tolist()])[nearest].T
    scale = np.sqrt(variance + spread**2)
    return prediction - low * scale, prediction + high * scale
