"""What rows were before they were overwritten, so that a store can go back to a checkpoint.

A log is a file of entries: the id of a task (plus one) and its old row, sealed for this log; then
zeros. An entry is on the disk before its row is overwritten, so a last one that is cut off has
nothing to undo. Another entry with a wrong sum is damaged, as is one of another log. After a power
loss, on a file system that extends a file before its data is there, an incomplete entry may look
damaged: the log is refused then.

The last entry of a log that another one follows names that one, before that one has any entry: so
a log that is cut off or missing is noticed. Of the newest log, which was open when its process was
killed, a part that was cut off later is not.
"""

import fcntl
import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from moml.atomic import open_plain, plain_handle
from moml.errors import CheckpointError
from moml.storage.rows_file import WORD, broken, checksums, sync, write_all

BLOCK = 1 << 24  # bytes that are read at once
PAGE = 4096  # writes past the cache begin and end at multiples of it
END = -2  # in the place of a task: the entry names the log that follows


class Undo:
    """A log, open to be appended to: past the cache of the system (O_DIRECT), where that works.

    `salt` is that of the rows, which come sealed with it.
    """

    def __init__(self, path: Path, salt: int):
        self._rows_salt, self._salt = salt, _salt(path, salt)
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
        _fill(self._buffer[self._tail : end].reshape(len(ids), -1), ids, rows, self._salt)
        self._buffer[end:size] = 0
        write_all(self._handle, self._buffer[:size].data, self._end)
        sync(self._handle)
        full = end // PAGE * PAGE
        self._end, self._tail = self._end + full, end - full
        self._buffer[: self._tail] = self._buffer[full:end].copy()

    def end(self, following: Path, stride: int) -> None:
        """Bring the last entry to the disk: the log that follows, which must exist and be empty."""
        words, id_ = np.zeros((1, stride // WORD), "<u8"), np.array([END])
        words[:, 0] = _salt(following, self._rows_salt)
        words[:, -1] = checksums(words, id_, self._rows_salt)
        self.add(id_, words.view(np.uint8))

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _salt(path: Path, salt: int) -> int:
    """What the entries of a log are sealed with: no other log has it."""
    return int.from_bytes(hashlib.sha256(f"{salt} {path.name}".encode()).digest()[:WORD])


def _pages(size: int) -> np.ndarray:
    """Bytes that begin at a page of the memory."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def empty(path: Path) -> None:
    """Remove all entries of a log from the disk."""
    handle = plain_handle(path, os.O_WRONLY | os.O_TRUNC)
    try:
        sync(handle)
    finally:
        os.close(handle)


def entries_of(path: Path, ids: np.ndarray, rows: np.ndarray, salt: int) -> np.ndarray:
    """Return the entries of some sealed rows in a log: bytes [rows, WORD + stride]."""
    entries = np.empty((len(ids), WORD + rows.shape[1]), np.uint8)
    _fill(entries, ids, rows, _salt(path, salt))
    return entries


def _fill(entries: np.ndarray, ids: np.ndarray, rows: np.ndarray, salt: int) -> None:
    entries[:, WORD:] = rows
    words = entries.view("<u8")
    words[:, 0] = ids + 1
    words[:, -1] += words[:, 0] + np.uint64(salt)


def records(
    path: Path, stride: int, salt: int, later: Sequence[Path] = ()
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ids and sealed rows of a log, in blocks; `later` are the logs that follow it.

    A damaged entry is a CheckpointError, as is a log that is cut off or whose follower is missing.
    """
    named = None
    for ids, rows in entries_in(path, stride, salt):
        last = ids == END
        if last.any():
            named = int(rows[last].view("<u8")[-1, 0])
        yield ids[~last], rows[~last]
    if named is None and not all(map(_is_empty, later)):
        raise CheckpointError(f"{path} is damaged: it was cut off")
    if named is not None and named not in [_salt(each, salt) for each in later[:1]]:
        raise CheckpointError(f"the log that follows {path} is missing")


def _is_empty(path: Path) -> bool:
    with open_plain(path) as file:
        return not file.read(WORD).strip(b"\0")


def entries_in(path: Path, stride: int, salt: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ids and sealed rows of all entries of a log, the last one too, in blocks."""
    size, at, own = WORD + stride, 0, np.uint64(_salt(path, salt))
    with open_plain(path) as file:
        while len(data := file.read(max(1, BLOCK // size) * size)) >= size:
            entries = np.frombuffer(bytearray(data), np.uint8, len(data) // size * size)
            entries = entries.reshape(-1, size)
            words = entries.view("<u8")
            ids, unused = words[:, 0].astype(np.int64) - 1, words[:, 0] == 0
            words[:, -1] -= words[:, 0] + own  # the checksum of the row alone
            rows = np.ascontiguousarray(entries[:, WORD:])
            wrong = [*broken(rows, ids, salt), *np.flatnonzero(unused)]
            good = min(wrong, default=len(entries))
            yield ids[:good], rows[:good]
            if wrong:
                rest = iter(lambda: file.read(BLOCK), b"")
                if any(part.strip(b"\0") for part in (data[good * size :], *rest)):
                    raise CheckpointError(f"{path} is damaged at byte {at + good * size}")
                return
            at += len(data)
