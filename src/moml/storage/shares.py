"""Leaves whose rows are written by several processes, each its own, and read by any number."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from moml.errors import CheckpointError


@dataclass(frozen=True)
class Share:
    """The rows of a leaf that one process has, from row `first` on; the leaf has `n` rows."""

    first: int
    rows: np.ndarray
    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, *self.rows.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return self.rows.dtype


class Pieces:
    """A leaf in several mapped files, by the first row of each: slices read only their rows."""

    def __init__(self, pieces: Mapping[int, np.ndarray]):
        self._pieces = dict(sorted(pieces.items()))
        end = 0
        for first, piece in self._pieces.items():
            if first != end:
                raise CheckpointError(f"rows {end} to {first} are missing")
            end += len(piece)
        some = self._pieces[0]
        self.shape, self.dtype, self.ndim = (end, *some.shape[1:]), some.dtype, some.ndim

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: slice) -> np.ndarray:
        start, stop, _ = at.indices(len(self))
        part = lambda first: slice(max(0, start - first), max(0, stop - first))
        return np.concatenate([rows[part(first)] for first, rows in self._pieces.items()])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)
