"""Intervals around predictions, from what held-out tasks were off by: split conformal bounds."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from moml.errors import ConfigError


def bounds(
    residuals: Mapping[int, Float[np.ndarray, " _"]], level: float
) -> dict[int, tuple[float, float]]:
    """Of each number of known rows, what to add for a lower and an upper bound.

    Of n residuals the one of rank floor((n + 1) a / 2) and the one as far from the top, a being
    1 - level: a row of a new task lies between with a chance of `level` at least.

    >>> bounds({1: np.arange(-9.0, 10.0)}, 0.9)
    {1: (-9.0, 9.0)}
    """
    if not 0 < level < 1:
        raise ConfigError(f"the interval must be between 0 and 1, as 0.9; given {level!r}")
    found = {}
    for known, some in residuals.items():
        rank = int((len(some) + 1) * (1 - level) / 2 + 1e-9)
        if rank < 1:
            least = int(np.ceil(2 / (1 - level) - 1e-9)) - 1
            told = f"this run has {len(some):,}"
            raise ConfigError(f"an interval of {level:g} takes {least:,} held-out rows; {told}")
        ordered = np.sort(some)
        found[known] = float(ordered[rank - 1]), float(ordered[-rank])
    return found


def around(
    prediction: Float[np.ndarray, " rows"],
    known: Int[np.ndarray, " rows"],
    residuals: Mapping[int, Float[np.ndarray, " _"]],
    level: float,
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """Lower and upper bounds of rows whose tasks had so many known rows."""
    found = bounds(residuals, level)
    numbers = np.array(sorted(found))
    nearest = np.maximum(np.searchsorted(numbers, known, side="right") - 1, 0)
    low, high = np.array([found[n] for n in numbers.tolist()])[nearest].T
    return prediction + low, prediction + high
