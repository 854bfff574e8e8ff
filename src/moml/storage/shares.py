"""Rows that several processes write, each its own, and any number of processes can read.

    rows/0000000000-0000250000/7.npy    leaf 7 of a state, rows 0 to 250,000

Plain files rather than orbax's: a process maps just the rows that it will own.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moml.errors import CheckpointError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """The rows of a leaf that one process has, from `first` on; the leaf has n."""

    first: int
    rows: np.ndarray
    n: int

    @property
    def shape(self) -> Shape:
        """Of the whole leaf."""
        return (self.n, *self.rows.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the leaf."""
        return self.rows.dtype

    @property
    def nbytes(self) -> int:
        """Of the rows that are here."""
        return self.rows.nbytes


class Pieces:
    """A leaf in several files: slices of its rows are read where they are asked for."""

    def __init__(self, files: Mapping[tuple[int, int], Path]):
        self._pieces = {at: np.load(file, mmap_mode="r") for at, file in sorted(files.items())}
        ends = [0, *(end for _, end in self._pieces)]
        for (first, end), before in zip(self._pieces, ends, strict=False):
            if first != before or len(self._pieces[first, end]) != end - first:
                raise CheckpointError(f"rows {before} to {first} are missing")
        some = next(iter(self._pieces.values()))
        self.shape: Shape = (ends[-1], *some.shape[1:])
        self.dtype = some.dtype
        self.ndim = some.ndim

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: slice) -> np.ndarray:
        start, stop, _ = at.indices(len(self))
        out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        for (first, end), piece in self._pieces.items():
            low, high = max(first, start), min(end, stop)
            if low < high:
                out[low - start : high - start] = piece[low - first : high - first]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)


def save_shares(folder: Path, shares: Mapping[int, Share]) -> None:
    """Write this process's rows of some leaves, by the leaves' numbers, and sync them."""
    some = next(iter(shares.values()), None)
    if some is None or not len(some.rows):  # of those without tasks there may be several
        return
    place = folder / f"{some.first:010d}-{some.first + len(some.rows):010d}"
    folder.mkdir(exist_ok=True)  # in the folder that process 0 has made, not in one of our own
    place.mkdir()
    for number, share in shares.items():
        with open(place / f"{number}.npy", "wb") as file:
            np.save(file, share.rows)
            file.flush()
            os.fsync(file.fileno())


def load_shares(folder: Path) -> dict[int, Pieces]:
    """All leaves that have rows in a folder."""
    files: dict[int, dict[tuple[int, int], Path]] = {}
    for file in folder.glob("*/*.npy"):
        first, end = map(int, file.parent.name.split("-"))
        if first < end:
            files.setdefault(int(file.stem), {})[first, end] = file
    return {number: Pieces(mine) for number, mine in files.items()}
