"""Prediction intervals from the residuals of held-out tasks: split conformal bounds."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from moml.errors import ConfigError

Residuals = Mapping[int, Float[np.ndarray, " _"]]  # number of known rows -> residuals


def bounds(residuals: Residuals, level: float) -> dict[int, tuple[float, float]]:
    """What to add to a prediction for its lower and upper bound, by number of known rows.

    With a = 1 - level, the bounds are the residual of rank floor((n + 1) a / 2) of n, and the one
    of that rank from the top: a row of a new task lies between with probability `level` or more.

    >>> bounds({1: np.arange(-9.0, 10.0)}, 0.9)
    {1: (-9.0, 9.0)}
    """
    if not 0 < level < 1:
        raise ConfigError(f"the interval must be between 0 and 1, such as 0.9; got {level!r}")
    if not residuals:
        raise ConfigError(
            "an interval needs a target of numbers; the target of this run is a class"
        )
    found = {}
    for known, some in residuals.items():
        rank = int((len(some) + 1) * (1 - level) / 2 + 1e-9)
        if rank < 1:
            least = int(np.ceil(2 / (1 - level) - 1e-9)) - 1
            has = f"this run has {len(some):,}"
            raise ConfigError(f"an interval of {level:g} needs {least:,} held-out rows; {has}")
        ordered = np.sort(some)
        found[known] = float(ordered[rank - 1]), float(ordered[-rank])
    return found


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
