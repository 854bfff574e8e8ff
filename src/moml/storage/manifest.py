"""The seal of a folder: size and SHA-256 of every file in it, and a digest of the list itself."""

import hashlib
import json
import os
from pathlib import Path

from moml.atomic import atomic_write, open_plain

NAME = "manifest.json"


def seal(folder: Path) -> None:
    """Write the manifest of a folder, and sync the folder with all that it holds."""
    files = {name: _measure(folder / name, sync=True) for name in _names(folder)}
    with atomic_write(folder / NAME) as file:
        file.write(_text(files))
    for inner in (*(path for path in folder.rglob("*") if path.is_dir()), folder):
        sync_folder(inner)


def verify(folder: Path, only: str | None = None) -> str | None:
    """Return what is wrong with a sealed folder, or with one file; None if all is as written."""
    name = NAME
    try:
        with open_plain(folder / NAME) as file:
            written = file.read()
        files = json.loads(written)["files"]
        if written != _text(files):
            return f"{NAME} is damaged"
        found = _names(folder)
        for name in sorted({*files, *found}) if only is None else [only]:
            if name not in found:
                return f"{name} is missing"
            if name not in files:
                return f"{name} does not belong to it"
            measured, expected = _measure(folder / name), files[name]
            if measured["size"] != expected["size"]:
                return f"{name} has {measured['size']} bytes instead of {expected['size']}"
            if measured != expected:
                return f"{name} is damaged: its SHA-256 is not that of the manifest"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        if (folder / name).is_symlink() or not (folder / name).is_file():
            return f"{name} is not a plain file"
        return f"{name} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{NAME} is damaged"
    return None


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _names(folder: Path) -> list[str]:
    """Every file below a folder but the manifest and Python's cache, by its relative path."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    inside = (path.relative_to(folder) for path in files)
    return sorted({p.as_posix() for p in inside if "__pycache__" not in p.parts} - {NAME})


def _measure(path: Path, sync: bool = False) -> dict[str, str | int]:
    with open_plain(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(file.fileno())
        return {"sha256": digest, "size": file.tell()}


def _text(files: object) -> bytes:
    """The canonical text of a manifest: one that reads otherwise was changed."""
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    content = {"files": files, "sha256_of_files": digest}
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
