"""Folders of table runs and exports: written as a whole and sealed, checked before they are read.

table.json             columns, names, settings, candidates
model.safetensors      all members, and the pooled model they are compared with
residuals.safetensors  residuals of held-out tasks, for intervals
evaluation.json        the scores
tasks.json, personal.safetensors   ids and personal parameters of all tasks; or, of `moml adapt`,
index.json, tasks/000001.safetensors, ...   one file per task
manifest.json          size and SHA-256 of each file
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from moml.errors import CheckpointError, ConfigError, MomlError
from moml.storage.files import writable_folder
from moml.storage.manifest import flaw, seal, sync_folder
from moml.types import Record

FORMAT = 2  # of table.json and the arrays beside it


def free_place(out: str | os.PathLike[str]) -> Path:
    """A path that does not exist yet, in a folder that can be written to."""
    out = Path(out)
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} exists already; give another name, or remove it")
    writable_folder(out.absolute().parent)
    return out


@contextmanager
def building(out: Path) -> Iterator[Path]:
    """A hidden folder that is sealed and renamed to `out` at the end; removed on an error."""
    place = out.absolute()
    partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        partial.mkdir()
        yield partial
        seal(partial)
        free_place(place)
        os.rename(partial, place)
        sync_folder(place.parent)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def refused(folder: Path) -> Iterator[None]:
    """Turn any error while reading a folder into a CheckpointError of one line."""
    try:
        yield
    except MomlError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise CheckpointError(f"{folder} was not written by moml: {reason}") from error


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def check_seal(folder: Path) -> None:
    """Raise unless every byte of the folder is as its manifest says."""
    if wrong := flaw(folder):
        raise CheckpointError(f"{folder} cannot be trusted: {wrong}")


def read_about(folder: Path) -> Record:
    """The table.json of a run; every byte of the folder is checked."""
    if not (folder / "table.json").is_file():
        raise ConfigError(f"{folder} is not the run of a table: it has no table.json")
    check_seal(folder)
    with refused(folder):
        about = read_json(folder / "table.json")
        if about["format"] != FORMAT:
            raise CheckpointError(
                f"{folder} was written by moml {about['versions']['moml']} in format "
                f"{about['format']!r}; this version reads format {FORMAT}"
            )
        text, optional = ("task", "target", "cold"), ("order", "weight", "model")
        good = all(isinstance(about[name], str) for name in text)
        good &= all(isinstance(about[name], str | None) for name in optional)
        good &= all(isinstance(id_, str) for name in ("trained", "held_out") for id_ in about[name])
        good &= all(type(about[name]) is int for name in ("shots", "seed"))
        if not good or about["cold"] not in ("personal", "pooled"):
            raise ValueError("table.json has settings of other types")
        return about
