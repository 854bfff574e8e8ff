"""metrics.jsonl: a line a stretch of training, of what is deterministic alone; only ever appended.

A checkpoint notes the `Mark` up to which the file was on disk; a resumed run cuts it back to there.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from moml.errors import CheckpointError, ConfigError, DataError

COUNTS = ("step", "iterations", "samples")  # whole numbers: of all members alike
VALUES = ("loss", "norm", "score")  # in a sweep lists over its members; score null unless scored
FIELDS = COUNTS + VALUES
COST = "cost"  # of methods with rounds besides: whole numbers, what all rounds so far have cost


class Mark(NamedTuple):
    """A place in the file: so many bytes, with this SHA-256."""

    offset: int
    digest: str


START = Mark(0, hashlib.sha256().hexdigest())


class Metrics:
    """The metrics file of a run, opened to go on from a mark: all after it is cut off."""

    def __init__(self, path: Path | str, mark: Mark = START):
        self.path = Path(path)
        if problem := flaw(self.path, mark):
            raise CheckpointError(problem)
        self._digest = hashlib.sha256(_prefix(self.path, mark.offset))
        try:
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
            self._file.truncate(mark.offset)
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {error.strerror}") from error

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row with the fields of FIELDS; what is not finite becomes null."""
        if set(row) - {COST} != set(FIELDS):
            raise DataError(f"a metrics row has {', '.join(FIELDS)}; given {', '.join(row)}")
        counts = {name: int(row[name]) for name in COUNTS}
        values = {name: _plain(row[name]) for name in VALUES}
        cost = {name: np.asarray(value, int).tolist() for name, value in row.get(COST, {}).items()}
        whole = counts | values | ({COST: cost} if cost else {})
        told = json.dumps(whole, separators=(",", ":"), allow_nan=False)
        line = told.encode() + b"\n"
        self._digest.update(line)
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            raise CheckpointError(f"cannot write {self.path}: {error.strerror}") from error

    def sync(self) -> Mark:
        """Bring all rows to the disk; the mark of their end."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise CheckpointError(f"cannot write {self.path}: {error.strerror}") from error
        return Mark(os.fstat(self._file.fileno()).st_size, self._digest.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def flaw(path: Path, mark: Mark) -> str | None:
    """Why a file cannot be gone on with from a mark, or None: `usable` of a checkpoint."""
    try:
        prefix = _prefix(path, mark.offset)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if len(prefix) < mark.offset:
        return f"{path} has {len(prefix)} bytes, fewer than the {mark.offset} of the checkpoint"
    if hashlib.sha256(prefix).hexdigest() != mark.digest:
        return f"{path} was changed: its first {mark.offset} bytes are not those of the checkpoint"
    return None


def read(path: Path | str) -> list[dict[str, Any]]:
    """The rows of a metrics file; a last line that was torn is left out."""
    try:
        lines = Path(path).read_bytes().split(b"\n")[:-1]  # what follows the last newline is torn
    except OSError as error:
        raise DataError(f"cannot read metrics from {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"line {number} of {path} is not JSON: {error}") from error
    return rows


def tensorboard_x() -> Any:
    """The package that writes for TensorBoard, or a ConfigError that says how to get it."""
    try:
        return import_module("tensorboardX")
    except ImportError as error:
        missing = "TensorBoard needs tensorboardX: pip install 'moml[tensorboard]'"
        raise ConfigError(missing) from error


@contextmanager
def tensorboard(folder: Path | str, step: int = 0) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that shows rows in TensorBoard too; what was shown from `step` on is dropped."""
    writer = tensorboard_x().SummaryWriter(str(folder), purge_step=step)

    def show(row: Mapping[str, Any]) -> None:
        for name in VALUES:
            value = _plain(row[name])
            members = enumerate(value) if isinstance(value, list) else [("", value)]
            for member, number in members:
                if number is not None:
                    writer.add_scalar(f"{name}/{member}".rstrip("/"), number, row["step"])
        writer.flush()

    with writer:
        yield show


def _prefix(path: Path, length: int) -> bytes:
    if length == 0:
        return b""
    with open(path, "rb") as file:
        return file.read(length)


def _plain(value: Any) -> Any:
    """A number, None, or a list of them, as strict JSON says it."""
    numbers = np.asarray(value, float)  # None becomes not a number, and that null
    told = [number if math.isfinite(number) else None for number in numbers.ravel().tolist()]
    return told if numbers.ndim else told[0]
