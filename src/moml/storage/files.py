"""Text and JSON files, folders that can be written to, and space on the disk."""

import errno
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from moml.atomic import atomic_write
from moml.errors import ConfigError, DataError
from moml.types import Record


def writable_folder(path: str | Path) -> Path:
    """Return a folder that results can be written to; it is made if it does not exist."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
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
    write_text(json.dumps(list(rows), indent=1) + "\n", path)


def write_text(text: str, path: str | Path) -> None:
    """Write a text file that appears complete or not at all."""
    try:
        with atomic_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def read_json(path: str | Path) -> list[Record]:
    """Read rows that `write_json` wrote; at least one is required."""
    try:
        rows = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read rows from {path}: {error}") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} holds no rows: it must be a JSON array of objects")
    return rows
