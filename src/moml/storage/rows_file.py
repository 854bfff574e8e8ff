"""A file of rows, one a task: the bytes of all its leaves, and a checksum of them.

Rows are read and written by `pread` and `pwrite`, not mapped: what a program maps counts as its
own memory, and a full disk would end it without a word.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from moml.errors import CheckpointError

WORD = 8  # bytes of a checksum, and of the words that it is the sum of
LINUX = sys.platform == "linux"


class Layout(NamedTuple):
    """The leaves of a row: their names with type and shape, and where they lie in its bytes.

    A sealed row is made of words of 64 bits, the last of which is the sum of the others: no flipped
    bit keeps it, and it is 0 of zeros, which a new file is made of. `zlib.crc32` would take ten
    times as long, and more than the rest of a read.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[np.dtype, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """Where each leaf ends."""
        sizes = [
            int(np.prod(s, dtype=int)) * t.itemsize
            for s, t in zip(self.shapes, self.types, strict=True)
        ]
        return tuple(int(end) for end in np.cumsum(sizes))

    @property
    def width(self) -> int:
        """Bytes of a row's leaves."""
        return self.ends[-1]

    @property
    def stride(self) -> int:
        """Bytes of a sealed row."""
        return -(-self.width // WORD) * WORD + WORD

    def _parts(self) -> Iterator[tuple[slice, tuple[int, ...], np.dtype]]:
        places = [slice(*ends) for ends in pairwise((0, *self.ends))]
        yield from zip(places, self.shapes, self.types, strict=True)

    def pack(self, leaves: Sequence[np.ndarray], which: Any) -> np.ndarray:
        """The rows `which` of some leaves, sealed."""
        chosen = [np.ascontiguousarray(leaf[which]) for leaf in leaves]
        count = len(chosen[0])
        rows = np.empty((count, self.stride), np.uint8)
        for (at, _, _), leaf in zip(self._parts(), chosen, strict=True):
            rows[:, at] = leaf.view(np.uint8).reshape(count, at.stop - at.start)
        rows[:, self.width : -WORD] = 0
        words(rows)[:, -1] = sums(rows)
        return rows

    def unpack(self, rows: np.ndarray, count: int) -> list[np.ndarray]:
        """The leaves of some rows (sealed or not), and after them zeros up to `count` rows."""
        leaves = []
        for at, shape, type_ in self._parts():
            leaf = np.zeros((count, *shape), type_)
            leaf.reshape(count, -1).view(np.uint8)[: len(rows)] = rows[:, at]
            leaves.append(leaf)
        return leaves


def layout_of(rows: Any) -> Layout:
    """The layout of a tree whose leaves have a leading axis of tasks (arrays or their shapes)."""
    found = jax.tree_util.tree_leaves_with_path(rows)
    return Layout(
        tuple(f"{jax.tree_util.keystr(at)} {x.dtype}{list(x.shape[1:])}" for at, x in found),
        tuple(tuple(x.shape[1:]) for _, x in found),
        tuple(np.dtype(x.dtype) for _, x in found),
    )


def _runs(ids: np.ndarray) -> list[tuple[int, int, int]]:
    """Neighbours among ascending ids, to be moved at once: (first id, from, to)."""
    cuts = [0, *(np.flatnonzero(np.diff(ids) != 1) + 1).tolist(), len(ids)]
    firsts = ids[cuts[:-1]].tolist() if len(ids) else []
    return list(zip(firsts, cuts[:-1], cuts[1:], strict=False))


def words(rows: np.ndarray) -> np.ndarray:
    """The same memory, [rows, words]."""
    return rows.view("<u8")


def sums(rows: np.ndarray) -> np.ndarray:
    """The checksum that each of some sealed rows should have."""
    return words(rows)[:, :-1].sum(axis=1, dtype=np.uint64)


def told(rows: np.ndarray) -> np.ndarray:
    """The checksum that each of some sealed rows has."""
    return words(rows)[:, -1]


def broken(rows: np.ndarray) -> np.ndarray:
    """Which of some sealed rows are not as they were written."""
    return np.flatnonzero(sums(rows) != told(rows))


class RowsFile:
    """The sealed rows of all tasks. One that was never written is zeros."""

    def __init__(self, path: Path, stride: int):
        self.path, self.stride = path, stride
        self._handle = os.open(path, os.O_RDWR)
        self._advise(0, 0, "RANDOM")  # else pages come in large blocks, which are slow to write to

    @classmethod
    def create(cls, path: Path, n: int, stride: int) -> "RowsFile":
        """A new file of zeros; its place on the disk is taken now, not when it is needed."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.posix_fallocate(handle, 0, n * stride) if LINUX else os.truncate(handle, n * stride)
        finally:
            os.close(handle)
        return cls(path, stride)

    def _advise(self, place: int, size: int, how: str) -> None:
        if LINUX:
            os.posix_fadvise(self._handle, place, size, getattr(os, f"POSIX_FADV_{how}"))

    def read(self, ids: np.ndarray) -> np.ndarray:
        """The sealed rows of some tasks, ids ascending; one whose checksum is wrong is named."""
        rows = np.empty((len(ids), self.stride), np.uint8)
        runs = _runs(ids)
        for first, start, end in runs:  # all are asked for before the first is waited for
            self._advise(first * self.stride, (end - start) * self.stride, "WILLNEED")
        flat = rows.reshape(-1).data
        for first, start, end in runs:
            part = flat[start * self.stride : end * self.stride]
            if not read_all(self._handle, part, first * self.stride):
                raise CheckpointError(f"{self.path} ends among the rows from task {first} on")
        if len(bad := broken(rows)):
            raise CheckpointError(
                f"{self.path} is damaged: the row of task {ids[bad[0]]} has another checksum"
            )
        return rows

    def write(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Sealed rows of some tasks, ids ascending."""
        flat = rows.reshape(-1).data
        for first, start, end in _runs(ids):
            part = flat[start * self.stride : end * self.stride]
            write_all(self._handle, part, first * self.stride)

    def drop(self) -> None:
        """Ask the system to keep nothing of the file in RAM: for measurements."""
        self.sync()
        self._advise(0, 0, "DONTNEED")

    def sync(self) -> None:
        """Bring all that was written to the disk."""
        sync(self._handle)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def sync(handle: int) -> None:
    """Bring what was written to a file to the disk."""
    (os.fdatasync if LINUX else os.fsync)(handle)


def write_all(handle: int, data: Any, place: int) -> None:
    """`pwrite`, until all is written; where there is no more room it raises."""
    while (done := os.pwrite(handle, data, place)) < len(data):
        data, place = data[done:], place + done


def read_all(handle: int, data: Any, place: int) -> bool:
    """`preadv`, until all is read (2 GiB come at once, at most); False where the file ends."""
    while data and (done := os.preadv(handle, [data], place)):
        data, place = data[done:], place + done
    return not data
