"""What rows were before they were overwritten, so that a store can go back to a checkpoint.

A log is a file of records: a header with the counts and checksums, ids, old rows. A row of zeros,
as all are before the first visit, is told by its id alone. A record is on the disk before the
first of its rows is overwritten; so one that is torn, the last, has nothing to take back.

A record is torn where the file ends inside it, as a log only grows by appending; any other that
does not fit its checksums is damaged. After a power loss, on a file system that lengthens a file
before its data is there, a torn one may look damaged: the log is refused then, rather than wrong.
"""

import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import numpy as np

from moml.errors import CheckpointError
from moml.storage.rows_file import broken, sync, told, write_all

MAGIC = b"\x93moml\x1aun"
HEAD = struct.Struct("<8sIIIII")  # magic; ids, rows, bytes of a row; checksums of all this, of HEAD
PAGE = 4096  # records begin at multiples of it, as writes past the system's cache must


class Undo:
    """A log, open to be added to: past the system's cache, where there is a way."""

    def __init__(self, path: Path):
        self._end, self._buffer = 0, mmap.mmap(-1, PAGE)
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with suppress(OSError):
            fcntl.fcntl(self._handle, fcntl.F_SETFL, getattr(os, "O_DIRECT", 0))

    def add(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Bring a record of these sealed rows to the disk."""
        parts = _parts(ids, rows)
        size = sum(len(part) for part in parts)
        if len(self._buffer) < size:
            self._buffer = mmap.mmap(-1, size)  # whose place in RAM begins a page
        at = 0
        for part in parts:
            self._buffer[at : at + len(part)] = part
            at += len(part)
        data = memoryview(self._buffer)[:size]
        try:
            write_all(self._handle, data, self._end)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            fcntl.fcntl(self._handle, fcntl.F_SETFL, 0)  # not on this disk: through the cache then
            write_all(self._handle, data, self._end)
        sync(self._handle)
        self._end += size

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def record_of(ids: np.ndarray, rows: np.ndarray) -> bytes:
    """A record, in one piece."""
    return b"".join(_parts(ids, rows))


def _parts(ids: np.ndarray, rows: np.ndarray) -> list[bytes | memoryview]:
    """A record: those rows first that are not zeros."""
    empty = told(rows) == 0
    empty[empty] = ~rows[empty].any(axis=1)
    full = rows[~empty] if empty.any() else rows
    who = np.concatenate([ids[~empty], ids[empty]]).astype("<i4").tobytes()
    head = HEAD.pack(MAGIC, len(ids), len(full), rows.shape[1], _sum(who, full), 0)[:-4]
    head += crc32(head).to_bytes(4, "little")
    body = np.ascontiguousarray(full).reshape(-1).data
    return [head, who, body, bytes(-(len(head) + len(who) + len(body)) % PAGE)]


def _sum(who: bytes, rows: np.ndarray) -> int:
    """Of a record's ids and its rows' own checksums."""
    return crc32(told(rows).tobytes(), crc32(who))


def records(path: Path, stride: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The records of a log, ids and sealed rows, up to one that is torn; none may be damaged."""
    with open(path, "rb") as file:
        at, size = 0, os.fstat(file.fileno()).st_size
        while at < size:
            file.seek(at)
            head = file.read(HEAD.size)
            if len(head) < HEAD.size or (not any(head) and _only_zeros(file)):
                return
            found, end = None, at
            if counts := _counts(head, stride):
                count, full, _ = counts
                end += -(-(HEAD.size + 4 * count + full * stride) // PAGE) * PAGE
                if end > size:
                    return
                found = _body(file, *counts, stride)
            if found is None:
                raise CheckpointError(f"{path} is damaged at byte {at}")
            yield found
            at = end


def _only_zeros(file: BinaryIO) -> bool:
    """Whether nothing else comes up to the end."""
    return not any(part.strip(b"\0") for part in iter(lambda: file.read(1 << 20), b""))


def _counts(head: bytes, stride: int) -> tuple[int, int, int] | None:
    """How many ids and rows a record has, and their checksum; None where this is no header."""
    magic, count, full, width, body, own = HEAD.unpack(head)
    good = magic == MAGIC and width == stride and crc32(head[:-4]) == own
    return (count, full, body) if good else None


def _body(
    file: BinaryIO, count: int, full: int, sum_: int, stride: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """The ids and rows that come here, or None where they do not fit their checksums."""
    who = file.read(4 * count)
    rows = np.zeros((count, stride), np.uint8)
    rows[:full] = np.frombuffer(file.read(full * stride), np.uint8).reshape(full, stride)
    if _sum(who, rows[:full]) != sum_ or len(broken(rows[:full])):
        return None
    return np.frombuffer(who, "<i4").astype(np.int64), rows
