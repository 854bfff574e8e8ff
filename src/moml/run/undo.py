"""What rows were before they were overwritten, so that a store can go back to a checkpoint.

A log is a file of records: a header with the counts and a checksum, ids, old rows. A row of zeros,
as all are before the first visit, is told by its id alone. A record is on the disk before the
first of its rows is overwritten; so one that is torn, the last, has nothing to take back.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import numpy as np

from moml.errors import CheckpointError
from moml.run.rows_file import write_all

MAGIC = b"\x93moml\x1aun"
HEAD = struct.Struct("<8sIIIII")  # magic; ids, rows, bytes of a row; checksums of the rest, of this
BLOCK = 1 << 24


class Undo:
    """A log, open to be added to."""

    def __init__(self, path: Path, width: int):
        self.width, self._end = width, 0
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def add(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Bring a record of these rows to the disk."""
        record = record_of(ids, rows, self.width)
        write_all(self._handle, record, self._end)
        os.fdatasync(self._handle)
        self._end += len(record)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def record_of(ids: np.ndarray, rows: np.ndarray, width: int) -> bytes:
    """A record: those rows first that are not zeros."""
    full = rows.any(axis=1)
    body = np.concatenate([ids[full], ids[~full]]).astype("<i4").tobytes() + rows[full].tobytes()
    head = HEAD.pack(MAGIC, len(ids), int(full.sum()), width, crc32(body), 0)[:-4]
    return head + crc32(head).to_bytes(4, "little") + body


def records(path: Path, width: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The records of a log, ids and rows; up to one that is torn, but past none that is damaged."""
    with open(path, "rb") as file:
        at, size = 0, os.fstat(file.fileno()).st_size
        while at < size:
            found = _record(file, size - at, width)
            if found is None:
                if _more(file, at + 1):
                    raise CheckpointError(f"{path} is damaged at byte {at}")
                return
            yield found
            at = file.tell()


def _record(file: BinaryIO, left: int, width: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The record that begins here, or None where it is not whole."""
    told = _head(file.read(HEAD.size))
    if told is None or told[2] != width:
        return None
    count, full, _, sum_ = told
    length = 4 * count + full * width
    if HEAD.size + length > left or crc32(body := file.read(length)) != sum_:
        return None
    ids = np.frombuffer(body, "<i4", count).astype(np.int64)
    rows = np.zeros((count, width), np.uint8)
    rows[:full] = np.frombuffer(body, np.uint8, offset=4 * count).reshape(full, width)
    return ids, rows


def _head(data: bytes) -> tuple[int, int, int, int] | None:
    if len(data) < HEAD.size:
        return None
    magic, count, full, width, body, own = HEAD.unpack(data)
    return (count, full, width, body) if magic == MAGIC and crc32(data[:-4]) == own else None


def _more(file: BinaryIO, at: int) -> bool:
    """Whether a record begins anywhere after `at`: nothing comes after a torn one."""
    file.seek(at)
    data = file.read(BLOCK)
    while data:
        place = data.find(MAGIC)
        while place >= 0:
            file.seek(at + place)
            if _head(file.read(HEAD.size)) is not None:
                return True
            place = data.find(MAGIC, place + 1)
        if len(data) < BLOCK:
            return False
        at += BLOCK - HEAD.size
        file.seek(at)
        data = file.read(BLOCK)
    return False
