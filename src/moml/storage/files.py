"""Files that appear whole or not at all, and folders that can be written to."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moml.errors import ConfigError, DataError


def writable_folder(path: str | Path) -> Path:
    """A folder that results can go to, made if it is not there."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"cannot write into the folder {folder}: permission denied")
    return folder


def write_json(rows: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Rows as a JSON array."""
    write_text(json.dumps(list(rows), indent=1) + "\n", path)


def write_text(text: str, path: str | Path) -> None:
    """A file that appears whole or not at all."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def read_json(path: str | Path) -> list[dict[str, Any]]:
    """Rows that `write_json` wrote; a file without any is refused."""
    try:
        rows = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read rows from {path}: {error}") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} holds no rows: a JSON array of objects")
    return rows
