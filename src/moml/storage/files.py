"""Text and JSON files, folders that can be written to, and space on the disk."""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from moml.atomic import SHARED, atomic_write, open_plain
from moml.errors import ConfigError, DataError, reason
from moml.types import Record


def writable_folder(path: str | Path, mode: int = 0o777) -> Path:
    """Return a folder that results can be written to; it is made if it does not exist."""
    folder = Path(path)
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"cannot write into the folder {folder}: permission denied")
    return folder


def check_space(folder: Path, needed: int) -> None:
    """Raise an OSError if a folder has no space for so many bytes."""
    free = shutil.disk_usage(folder).free
    if 0 < free < needed:  # some file systems report 0
        sizes = f"{needed / 1e6:,.1f} MB needed, {free / 1e6:,.1f} MB free"
        raise OSError(errno.ENOSPC, f"no space left: {sizes}")


def write_json(rows: Sequence[Record], path: str | Path) -> None:
    """Write rows as a JSON array."""
    write_text(json.dumps(list(rows), indent=1) + "\n", path, SHARED)


@contextmanager
def writing_to(path: str | Path) -> Iterator[None]:
    """Turn an error of the system into one line: cannot write PATH: no space left on device."""
    try:
        yield
    except (OSError, ConfigError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise ConfigError(f"cannot write {path}: {reason(cause)}") from cause


def write_text(text: str, path: str | Path, permissions: int = 0o600) -> None:
    """Write a text file that appears complete or not at all."""
    write_bytes(text.encode(), path, permissions)


def write_bytes(content: bytes, path: str | Path, permissions: int = 0o600) -> None:
    """Write a file that appears complete or not at all."""
    with writing_to(path), atomic_write(path, permissions) as file:
        file.write(content)


def copy_plain(source: str | Path, target: str | Path) -> None:
    """Copy a plain file; the copy appears complete or not at all."""
    with writing_to(target), open_plain(source) as file, atomic_write(target) as new:
        shutil.copyfileobj(file, new)


def read_json(path: str | Path) -> list[Record]:
    """Read rows that `write_json` wrote; at least one is required."""
    try:
        rows = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read rows from {path}: {error}") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} holds no rows: it must be a JSON array of objects")
    return rows
