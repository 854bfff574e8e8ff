"""One model of rows that belong to nobody: the same engine, and nothing adapts."""

import math
from typing import Any

import numpy as np

from moml.errors import DataError
from moml.tabular.fit import fit_groups
from moml.tabular.model import TableModel

PILES = 16  # that the rows are dealt to: a step draws some of each
HELD = 1024  # rows that decide when to stop, at most
SHARE = 7  # one in so many is held out for that


def fit_rows(
    x: Any,
    y: Any,
    *,
    classes: int | None = None,
    weights: Any = None,
    members: int = 3,
    iterations: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> TableModel:
    """Learn from rows x [rows, features], y [rows] to predict others; as `fit_groups` without any.

    Held out are a power of two of rows, near a seventh, so that tables share compiled programs.
    """
    n = len(x)
    if n < 2:
        raise DataError(f"n_samples = {n}: too few to learn from, at least 2 are needed")
    held = min(HELD, 1 << max(0, (n // SHARE).bit_length() - 1))
    rows = np.random.default_rng([seed, 6]).permutation(n)
    rest = rows[held:]
    piles = [rest[i::PILES] if len(rest) >= PILES else rest for i in range(PILES)]
    return fit_groups(
        x, y, [*rows[:held, None], *piles], shots=1, held_out=range(held), kinds=["pooled"],
        classes=classes, weights=weights, members=members, seed=seed, progress=progress,
        iterations=max(2000, math.ceil(n / 100)) if iterations is None else iterations,
    )  # fmt: skip
