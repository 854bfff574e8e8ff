"""Leaves whose rows are written by several processes, each its own, and read by any number.

part-0003.safetensors   the rows of the fourth process; `.memory.u@250000`: from row 250,000 on
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from moml.errors import CheckpointError
from moml.storage.arrays import read_arrays, write_arrays


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


def write_shared(folder: Path, process: int, shares: Mapping[str, Share]) -> None:
    """Write the rows of this process."""
    if shares:
        rows = {f"{name}@{share.first}": share.rows for name, share in shares.items()}
        write_arrays(folder / f"part-{process:04d}.safetensors", rows)


def read_shared(folder: Path, mapped: bool) -> dict[str, np.ndarray | Pieces]:
    """Return the leaves in the files of all processes, read or mapped."""
    pieces: dict[str, dict[int, np.ndarray]] = {}
    for path in folder.glob("part-*.safetensors"):
        for key, rows in read_arrays(path).items():
            name, _, first = key.rpartition("@")
            if len(rows):  # a process may have none
                pieces.setdefault(name, {})[int(first)] = rows
    leaves = {name: Pieces(each) for name, each in pieces.items()}
    return {name: leaf if mapped else np.asarray(leaf) for name, leaf in leaves.items()}
