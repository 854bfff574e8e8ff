"""metrics.jsonl: a line per stretch of training, with deterministic values only.

A checkpoint notes the `Mark` up to which the file was synced; a resumed run truncates it there.
"""

import hashlib
import json
import math
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from moml.atomic import append_plain, open_plain
from moml.errors import CheckpointError, DataError
from moml.storage.files import writing_to
from moml.types import Record

COUNTS = ("step", "iterations", "samples")  # integers, the same for all members of a sweep
VALUES = ("loss", "norm", "score")  # in a sweep lists over its members; score may be null
FIELDS = COUNTS + VALUES
COST = "cost"  # of methods with rounds: integers, the cost of all rounds so far


class Mark(NamedTuple):
    """A position in the file, and the SHA-256 of the bytes before it."""

    offset: int
    digest: str


START = Mark(0, hashlib.sha256().hexdigest())


def mark_of(info: Record) -> Mark:
    """Return the mark that a checkpoint notes."""
    try:
        return Mark(int(info["metrics"]["offset"]), str(info["metrics"]["digest"]))
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError("it notes no place in metrics.jsonl") from error


class Metrics:
    """The metrics file of a run, opened at a mark: all after it is truncated."""

    def __init__(self, path: Path | str, mark: Mark = START):
        self.path = Path(path)
        if problem := verify(self.path, mark):
            raise CheckpointError(problem)
        self._digest = hashlib.sha256(_prefix(self.path, mark.offset))
        with writing_to(self.path):
            self._file = append_plain(self.path)
            self._file.truncate(mark.offset)

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, row: Record) -> None:
        """Append one row with the fields of FIELDS; values that are not finite become null."""
        if set(row) - {COST} != set(FIELDS):
            raise DataError(f"a metrics row must have {', '.join(FIELDS)}; got {', '.join(row)}")
        counts = {name: int(row[name]) for name in COUNTS}
        values = {name: plain(row[name]) for name in VALUES}
        cost = {name: np.asarray(value, int).tolist() for name, value in row.get(COST, {}).items()}
        whole = counts | values | ({COST: cost} if cost else {})
        line = json.dumps(whole, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        self._digest.update(line)
        with writing_to(self.path):
            while line:
                line = line[self._file.write(line) :]

    def sync(self) -> Mark:
        """Sync all rows to the disk, and return the mark of their end."""
        with writing_to(self.path):
            os.fsync(self._file.fileno())
        return Mark(os.fstat(self._file.fileno()).st_size, self._digest.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def verify(path: Path, mark: Mark) -> str | None:
    """Return why a file cannot be continued from a mark, or None."""
    try:
        prefix = _prefix(path, mark.offset)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if len(prefix) < mark.offset:
        return f"{path} has {len(prefix)} bytes, fewer than the {mark.offset} of the checkpoint"
    if hashlib.sha256(prefix).hexdigest() != mark.digest:
        return f"{path} was changed: its first {mark.offset} bytes are not those of the checkpoint"
    return None


def read(path: Path | str) -> list[Record]:
    """Return the rows of a metrics file, without a last line that is incomplete."""
    try:
        with open_plain(path) as file:
            lines = file.read().split(b"\n")[:-1]  # after the last newline: incomplete
    except OSError as error:
        raise DataError(f"cannot read metrics from {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"line {number} of {path} is not JSON: {error}") from error
    return rows


def _prefix(path: Path, length: int) -> bytes:
    if length == 0:
        return b""
    with open_plain(path) as file:
        return file.read(length)


def plain(value: object) -> float | list[float | None] | None:
    """A number, None, or a list of them, as strict JSON has it."""
    numbers = np.asarray(value, float)  # None becomes NaN, and that null
    plain = [number if math.isfinite(number) else None for number in numbers.ravel().tolist()]
    return plain if numbers.ndim else plain[0]
