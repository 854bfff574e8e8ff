"""Prediction intervals from the residuals of tasks that were not learned from: conformal bounds.

Rows of one task are alike, so the tasks count, not their rows.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from moml.errors import ConfigError

Residuals = Mapping[int, Float[np.ndarray, "_ 2"]]  # known rows -> residuals and their tasks


def bounds(residuals: Residuals, level: float) -> dict[int, tuple[float, float]]:
    """What to add to a prediction for its lower and upper bound, by number of known rows.

    The new task is as likely as any of G others to be the most extreme one. So each of the G has
    the share 1 / (G + 1), spread evenly over its rows, and as much lies beyond all residuals. With
    a = 1 - level, the bounds are the quantiles a / 2 and 1 - a / 2 of this distribution: a row of a
    new task lies between with probability `level` or more. With fewer than 2 / a - 1 tasks they are
    infinite.

    >>> some = np.arange(-9.0, 10.0)
    >>> bounds({1: np.column_stack([some, np.arange(19)])}, 0.9)
    {1: (-9.0, 9.0)}
    >>> bounds({1: np.column_stack([some, np.arange(19) // 2])}, 0.9)  # 10 tasks
    {1: (-inf, inf)}
    """
    if not 0 < level < 1:
        raise ConfigError(f"the interval must be between 0 and 1, such as 0.9; got {level!r}")
    if not residuals:
        raise ConfigError(
            "an interval needs a target of numbers; the target of this run is a class"
        )
    top = 1 - (1 - level) / 2
    found = {}
    for known, some in residuals.items():
        _, task, sizes = np.unique(some[:, 1], return_inverse=True, return_counts=True)
        share = 1 / ((len(sizes) + 1) * sizes[task])
        found[known] = -_quantile(-some[:, 0], share, top), _quantile(some[:, 0], share, top)
    return found


def _quantile(
    values: Float[np.ndarray, " rows"], share: Float[np.ndarray, " rows"], level: float
) -> float:
    """The least value with `level` of the shares at or below it; infinite if there is none."""
    order = np.argsort(values)
    reached = np.cumsum(share[order]) >= level - 1e-9
    return float(values[order][reached.argmax()]) if reached.any() else float("inf")


def tasks_lacking(residuals: Residuals, level: float) -> tuple[int, int] | None:
    """How many tasks finite bounds need and how many there are; None where these are enough.

    >>> tasks_lacking({1: np.column_stack([np.zeros(19), np.arange(19) // 2])}, 0.9)
    (19, 10)
    """
    needed = int(np.ceil(2 / (1 - level) * (1 - 1e-9))) - 1
    fewest = min(len(np.unique(some[:, 1])) for some in residuals.values())
    return (needed, fewest) if fewest < needed else None


def around(
    prediction: Float[np.ndarray, " rows"],
    known: Int[np.ndarray, " rows"],
    residuals: Residuals,
    level: float,
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """Lower and upper bounds of rows, by the number of known rows of each row's task."""
    found = bounds(residuals, level)
    numbers = np.array(sorted(found))
    nearest = np.maximum(np.searchsorted(numbers, known, side="right") - 1, 0)
    low, high = np.array([found[n] for n in numbers.tolist()])[nearest].T
    return prediction + low, prediction + high
