"""Somebody wants out: their id, memory and personal parameters leave every file of a run.

A table's run, the folder of `moml adapt` and an export are written anew beside their place, without
the person; the two folders change places in one step, and the old one is removed. Killed at any
moment, it leaves the old one or the new one there; the same command again clears up after it.
"""

import ctypes
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moml.errors import CheckpointError, ConfigError
from moml.serving.forget_memory import forget_memories
from moml.storage.arrays import read_arrays, writing
from moml.storage.files import write_text
from moml.storage.folder import Lock
from moml.storage.manifest import NAME, seal, sync_folder, verify
from moml.tabular.predict import BLOCK
from moml.tabular.read import about_of

STAYS = (
    "what cannot be removed: the trace in the common parameters w, and in what is shared and names "
    "nobody (column means and quantiles, scores, residuals); only training again without their "
    "rows does that"
)
COPIES = "not touched: other folders made from this one (adapt, export, --from), copies and backups"
ARRAYS = ("personal.safetensors", "tasks.safetensors")
CHANGED = {"table.json", "card.json", "tasks.json", "index.json", NAME, *ARRAYS}


def forget(run: str | os.PathLike[str], tasks: Sequence[str]) -> list[str]:
    """Remove all that is kept of some tasks; gives lines on what was done, and what cannot be."""
    folder = Path(run).resolve()
    if (folder / "run.json").exists():
        return [*forget_memories(folder, tasks), STAYS, COPIES]
    work = folder.with_name(f".{folder.name}.forget")
    if not folder.is_dir() and not (work / "old").is_dir():
        raise ConfigError(f"{folder} is no folder of a run")
    with Lock(work, "moml forget"):
        cleared = _cleared_up(folder, work)
        try:
            done = _without(folder, work, dict.fromkeys(tasks), cleared)
        except OSError as error:
            raise ConfigError(f"cannot rewrite {folder}: {error.strerror or error}") from error
        finally:
            if folder.exists():
                shutil.rmtree(work)
    return [*done, STAYS, COPIES]


def _cleared_up(folder: Path, work: Path) -> bool:
    """What a killed process left is put right; whether there was anything."""
    new, old = work / "new", work / "old"
    if not folder.exists() and old.exists():  # killed between two renames
        os.rename(new if new.exists() and verify(new) is None else old, folder)
    left = [path for path in (new, old) if path.exists()]
    for path in left:
        shutil.rmtree(path)
    return bool(left)


def _without(folder: Path, work: Path, tasks: dict[str, None], cleared: bool) -> list[str]:
    """Write the folder anew without these tasks, and say so."""
    about, name = _about(folder)
    index = _json(folder / "index.json", {})
    told = _json(folder / "tasks.json", {"ids": [], "rows": []})
    there = {*told["ids"], *index, *about.get("trained", []), *about.get("held_out", [])}
    missing = [id_ for id_ in tasks if id_ not in there]
    if missing and not cleared:
        raise ConfigError(f"{folder} knows no task {missing[0]!r}; nothing was changed")
    if len(missing) == len(tasks):
        return ["done before: what an interrupted command had left is removed"]
    new = work / "new"
    new.mkdir()
    gone = {f"tasks/{Path(own['file']).name}" for id_, own in index.items() if id_ in tasks}
    for path in sorted(folder.rglob("*")):
        at = path.relative_to(folder).as_posix()
        if path.is_dir():
            (new / at).mkdir()
        elif at not in gone | CHANGED:
            _linked(path, new / at)
    _write_rest(folder, new, about, name, index, told, tasks)
    seal(new)
    _change_places(folder, work)
    words = [f"{len(tasks) - len(missing):,} forgotten: id, number of rows, personal parameters"]
    for given in (*about["columns"]["inputs"], about["columns"]["target"]):
        if {*given.get("words", []), *given.get("classes", [])} & set(tasks):
            words.append(f"column {given['name']} has a category of that name: it stays")
    return words


def _write_rest(
    folder: Path,
    new: Path,
    about: dict[str, Any],
    name: str,
    index: dict[str, Any],
    told: dict[str, list[Any]],
    tasks: dict[str, None],
) -> None:
    """The files that tell of tasks, with what is left of them."""
    others = lambda ids: [id_ for id_ in ids if id_ not in tasks]
    lists = {key: others(about[key]) for key in ("trained", "held_out") if key in about}
    write_text(json.dumps(about | lists, indent=1) + "\n", new / name)
    if index:
        kept = {id_: index[id_] for id_ in others(index)}
        write_text(json.dumps(kept, indent=1) + "\n", new / "index.json")
    if told["ids"]:
        stay = np.array([i for i, id_ in enumerate(told["ids"]) if id_ not in tasks], int)
        some = {key: [told[key][i] for i in stay.tolist()] for key in ("ids", "rows")}
        write_text(json.dumps(some) + "\n", new / "tasks.json")
        for file in ARRAYS:
            if (folder / file).exists():
                _some_rows(folder / file, new / file, stay)


def _about(folder: Path) -> tuple[dict[str, Any], str]:
    """The table.json of a run, or the card of an export; every byte is checked."""
    if not (folder / "card.json").exists():
        return about_of(folder), "table.json"
    if wrong := verify(folder):
        raise CheckpointError(f"{folder} cannot be trusted: {wrong}")
    card = _json(folder / "card.json", {})
    if card.get("kind") != "table":
        raise ConfigError(f"{folder} is the export of a network: it holds nothing of single tasks")
    return card, "card.json"


def _json(path: Path, nothing: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else nothing


def _some_rows(old: Path, new: Path, stay: np.ndarray) -> None:
    """The same arrays with these rows alone, a block of them at a time."""
    arrays = read_arrays(old)
    like = {
        name: jax.ShapeDtypeStruct((len(stay), *a.shape[1:]), a.dtype) for name, a in arrays.items()
    }
    with writing(new, like) as put:
        for name, values in arrays.items():
            for first in range(0, len(stay), BLOCK):
                put(name, first, values[stay[first : first + BLOCK]])


def _linked(path: Path, place: Path) -> None:
    """The same file at another place, as a second name of it where the disk allows."""
    try:
        os.link(path, place, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, place, follow_symlinks=False)


def _change_places(folder: Path, work: Path) -> None:
    """The new folder takes the old one's place, in one step where the system has one for it."""
    if not _exchanged(folder, work / "new"):
        os.rename(folder, work / "old")
        os.rename(work / "new", folder)
    sync_folder(folder.parent)
    sync_folder(work)


def _exchanged(one: Path, other: Path) -> bool:
    """Two folders by each other's name (Linux: renameat2 with RENAME_EXCHANGE)."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2
    return call is not None and not call(here, os.fsencode(one), here, os.fsencode(other), exchange)
