"""A file of rows, one per task: the bytes of all its leaves, and a checksum.

Rows are read by `pread` and written by `pwrite`, not mapped: mapped pages count as memory of the
process, and a full disk would kill it without an error.

A checksum also depends on the task and on the store: a row of another task, or of another run's
file, is refused. A row of zeros is one that was never written, so rows that the disk turned into
zeros are not noticed.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from moml.atomic import plain_handle
from moml.errors import CheckpointError
from moml.storage.arrays import leaf_specs

WORD = 8  # bytes of a checksum, and of the words that it is the sum of
APART = 0x9E3779B97F4A7C16  # even: no flipped bit of an id in a log keeps the sum of its entry
LINUX = sys.platform == "linux"
sync = getattr(os, "fdatasync", os.fsync)


class Layout(NamedTuple):
    """The leaves of a row: how they are described, and their places in its bytes.

    A sealed row consists of words of 64 bits; the last is the sum of the others and of a number
    that its task and the store's `salt` give. No flipped bit keeps it. `zlib.crc32` takes ten times
    as long, which is more than the rest of a read.
    """

    names: tuple[str, ...]
    row: np.dtype  # a field for each leaf, and padding

    @property
    def stride(self) -> int:
        """Bytes of a sealed row."""
        return self.row.itemsize

    @property
    def width(self) -> int:
        """Bytes of the leaves of a row."""
        return sum(self.row[i].itemsize for i in range(len(self.names)))

    def pack(self, leaves: Sequence[np.ndarray], ids: np.ndarray, salt: int) -> np.ndarray:
        """Return the rows of these tasks, the first of the leaves, sealed: bytes [rows, stride]."""
        rows = np.zeros(len(ids), self.row)
        for field, leaf in zip(self.row.names or (), leaves, strict=True):
            rows[field] = leaf[: len(ids)]
        words = rows.view("<u8").reshape(len(rows), -1)
        words[:, -1] = checksums(words, ids, salt)
        return words.view(np.uint8)

    def unpack(self, rows: np.ndarray, count: int) -> list[np.ndarray]:
        """Return the leaves of some rows, followed by zeros up to `count` rows."""
        fields, leaves = np.ascontiguousarray(rows).view(self.row)[:, 0], []
        for name in self.row.names or ():
            leaf = np.zeros((count, *fields[name].shape[1:]), fields[name].dtype)
            leaf[: len(rows)] = fields[name]
            leaves.append(leaf)
        return leaves


def layout_of(rows: PyTree) -> Layout:
    """Return the layout of a tree whose leaves have a leading axis of tasks (or of its shapes)."""
    formats = [(np.dtype(x.dtype), x.shape[1:]) for x in jax.tree.leaves(rows)]
    ends = np.cumsum([0, *(np.dtype(field).itemsize for field in formats)]).tolist()
    names = [f"f{i}" for i in range(len(formats))]
    size = (-(-ends[-1] // WORD) + 1) * WORD
    row = np.dtype({"names": names, "formats": formats, "offsets": ends[:-1], "itemsize": size})
    return Layout(tuple(leaf_specs(rows, leading=1)), row)


def checksums(words: np.ndarray, ids: np.ndarray, salt: int) -> np.ndarray:
    """Return the checksums of rows of these tasks, in words of which the last is left out."""
    own = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(APART) + np.uint64(salt)
    return words[:, :-1].sum(axis=1, dtype=np.uint64) + own


def broken(rows: np.ndarray, ids: np.ndarray, salt: int) -> np.ndarray:
    """Return which of some sealed rows are not as they were written for these tasks."""
    words = rows.view("<u8")
    wrong = np.flatnonzero(checksums(words, ids, salt) != words[:, -1])
    return wrong[words[wrong].any(axis=1)]


class RowsFile:
    """The sealed rows of all tasks. One that was never written is zeros."""

    def __init__(self, path: Path, stride: int, salt: int, create: int = 0):
        """Open a file, or with `create` make one of so many rows, their disk space reserved."""
        self.path, self.stride, self._salt = path, stride, salt
        new = os.O_CREAT | os.O_TRUNC if create else 0
        self._handle = plain_handle(path, os.O_RDWR | new)
        if create:
            os.ftruncate(self._handle, create * stride)
            if LINUX:
                os.posix_fallocate(self._handle, 0, create * stride)
            self.sync()
        self._advise(0, 0, "RANDOM")  # else pages come in large blocks, which are slow to write to

    def _advise(self, place: int, size: int, how: str) -> None:
        if LINUX:
            os.posix_fadvise(self._handle, place, size, getattr(os, f"POSIX_FADV_{how}"))

    def _runs(self, ids: np.ndarray, rows: np.ndarray) -> Iterator[tuple[int, memoryview]]:
        """Neighbours among ascending ids, moved at once: their place in the file, their bytes."""
        cuts = [0, *(np.flatnonzero(np.diff(ids) != 1) + 1).tolist(), len(ids)]
        for start, end in pairwise(cuts):
            if start < end:
                yield int(ids[start]) * self.stride, rows[start:end].reshape(-1).data

    def read(self, ids: np.ndarray) -> np.ndarray:
        """Return the sealed rows of some tasks, ids ascending; their checksums are verified."""
        rows = np.empty((len(ids), self.stride), np.uint8)
        runs = [*self._runs(ids, rows)]
        for place, data in runs:  # all are requested before the first is waited for
            self._advise(place, len(data), "WILLNEED")
        for place, data in runs:
            at = place
            while data and (done := os.preadv(self._handle, [data], at)):
                data, at = data[done:], at + done
            if data:
                raise CheckpointError(
                    f"{self.path} ends among the rows from task {place // self.stride} on"
                )
        if len(bad := broken(rows, ids, self._salt)):
            raise CheckpointError(
                f"{self.path} is damaged: the row of task {ids[bad[0]]} has another checksum"
            )
        return rows

    def write(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Write sealed rows of some tasks, ids ascending."""
        for place, data in self._runs(ids, rows):
            write_all(self._handle, data, place)

    def sync(self) -> None:
        """Bring all that was written to the disk."""
        sync(self._handle)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def write_all(handle: int, data: memoryview, place: int) -> None:
    """Call `pwrite` until all is written; raises if there is no more space."""
    while (done := os.pwrite(handle, data, place)) < len(data):
        data, place = data[done:], place + done
