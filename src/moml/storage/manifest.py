"""The seal of a folder: size and SHA-256 of every file in it, and a digest of the list itself.

Orbax loads a flipped bit without a word; a sealed folder does not let one through. How the seal is
written stays the same in every format of checkpoints, so that it can be trusted before all else.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

NAME = "manifest.json"


def seal(folder: Path) -> None:
    """Write the manifest of a folder, and bring the folder with all it holds to the disk."""
    files = {name: _measure(folder / name, sync=True) for name in _names(folder)}
    with open(folder / NAME, "wb") as file:
        file.write(_text(files))
        file.flush()
        os.fsync(file.fileno())
    for inner in (*(path for path in folder.rglob("*") if path.is_dir()), folder):
        sync_folder(inner)


def flaw(folder: Path) -> str | None:
    """What is wrong with a sealed folder, or None: every byte of it is as it was written."""
    try:
        if (folder / NAME).is_symlink() or (folder / NAME).is_fifo():
            return f"{NAME} is no plain file"
        written = (folder / NAME).read_bytes()
        files = json.loads(written)["files"]
        if written != _text(files):
            return f"{NAME} is damaged"
        found = _names(folder)
        for name in sorted({*files, *found}):
            if name not in found:
                return f"{name} is missing"
            if name not in files:
                return f"{name} does not belong to it"
            if (folder / name).is_symlink() or not (folder / name).is_file():
                return f"{name} is no plain file"
            size = (folder / name).stat().st_size
            if size != files[name]["size"]:
                return f"{name} has {size} bytes instead of {files[name]['size']}"
            if _measure(folder / name) != files[name]:
                return f"{name} is damaged: its SHA-256 is not that of the manifest"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"{error.filename or folder} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{NAME} is damaged"
    return None


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _names(folder: Path) -> list[str]:
    """Every file below, by its path from the folder, but for the manifest."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted({path.relative_to(folder).as_posix() for path in files} - {NAME})


def _measure(path: Path, sync: bool = False) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(file.fileno())
        return {"sha256": digest, "size": file.tell()}


def _text(files: Any) -> bytes:
    """The one way to write these entries: a manifest that reads otherwise was changed."""
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    told = {"files": files, "sha256_of_files": digest}
    return (json.dumps(told, indent=1, sort_keys=True) + "\n").encode()
