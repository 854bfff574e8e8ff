"""What rows were before they were overwritten, so that a store can go back to a checkpoint.

A log is a file of entries: the id of a task (plus one), its old row, the sum of both; then zeros.
An entry is on the disk before its row is overwritten, so a last one that is cut off has nothing to
undo. Another entry with a wrong sum is damaged. After a power loss, on a file system that extends
a file before its data is there, an incomplete entry may look damaged: the log is refused then.
"""

import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from moml.atomic import open_plain, plain_handle
from moml.errors import CheckpointError
from moml.storage.rows_file import WORD, broken, sync, write_all

BLOCK = 1 << 24  # bytes that are read at once
PAGE = 4096  # writes past the cache begin and end at multiples of it


class Undo:
    """A log, open to be appended to: past the cache of the system (O_DIRECT), where that works."""

    def __init__(self, path: Path):
        self._handle = plain_handle(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._end, self._tail = 0, 0
        self._buffer = _pages(PAGE)
        try:
            fcntl.fcntl(self._handle, fcntl.F_SETFL, getattr(os, "O_DIRECT", 0))
            os.pwrite(self._handle, self._buffer.data, 0)
        except OSError:  # not on this disk
            fcntl.fcntl(self._handle, fcntl.F_SETFL, 0)

    def add(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Bring entries with these sealed rows to the disk."""
        end = self._tail + len(ids) * (WORD + rows.shape[1])
        size = -(-end // PAGE) * PAGE  # whole pages: the last one is written again by the next call
        if len(self._buffer) < size:
            old, self._buffer = self._buffer, _pages(size)
            self._buffer[: self._tail] = old[: self._tail]
        _fill(self._buffer[self._tail : end].reshape(len(ids), -1), ids, rows)
        self._buffer[end:size] = 0
        write_all(self._handle, self._buffer[:size].data, self._end)
        sync(self._handle)
        full = end // PAGE * PAGE
        self._end, self._tail = self._end + full, end - full
        self._buffer[: self._tail] = self._buffer[full:end].copy()

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _pages(size: int) -> np.ndarray:
    """Bytes that begin at a page of the memory."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def entries_of(ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the entries of some sealed rows: bytes [rows, WORD + stride]."""
    entries = np.empty((len(ids), WORD + rows.shape[1]), np.uint8)
    _fill(entries, ids, rows)
    return entries


def _fill(entries: np.ndarray, ids: np.ndarray, rows: np.ndarray) -> None:
    entries[:, WORD:] = rows
    words = entries.view("<u8")
    words[:, 0] = ids + 1
    words[:, -1] += words[:, 0]


def records(path: Path, stride: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ids and sealed rows of a log, in blocks; a damaged entry is a CheckpointError."""
    size, at = WORD + stride, 0
    with open_plain(path) as file:
        while len(data := file.read(max(1, BLOCK // size) * size)) >= size:
            entries = np.frombuffer(bytearray(data), np.uint8, len(data) // size * size)
            entries = entries.reshape(-1, size)
            words = entries.view("<u8")
            wrong = [*broken(entries), *np.flatnonzero(words[:, 0] == 0)]
            good = min(wrong, default=len(entries))
            words[:, -1] -= words[:, 0]  # the checksum of the row alone
            yield words[:good, 0].astype(np.int64) - 1, entries[:good, WORD:]
            if wrong:
                rest = iter(lambda: file.read(BLOCK), b"")
                if any(part.strip(b"\0") for part in (data[good * size :], *rest)):
                    raise CheckpointError(f"{path} is damaged at byte {at + good * size}")
                return
            at += len(data)
