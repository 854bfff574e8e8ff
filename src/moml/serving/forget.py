"""Remove tasks from a run: their ids, memories and personal parameters leave every file.

A table's run, a folder of `moml adapt` and an export are rewritten without the tasks in
`.NAME.forget/new`; then the old folder moves to `.NAME.forget/old`, the new one takes its place,
and the old one is removed. After a kill at any moment, the same command again finishes the work.
"""

import os
import re
import shutil
from collections.abc import Sequence
from json import dumps
from pathlib import Path

import numpy as np

from moml.errors import ConfigError
from moml.serving.forget_memory import forget_memories
from moml.storage.arrays import read_arrays
from moml.storage.files import copy_plain, write_text, writing_to
from moml.storage.folder import Lock, check_plain
from moml.storage.manifest import NAME, seal, sync_folder, verify
from moml.tabular.store import BLOCK, check_seal, read_about, read_json, write_blocks, write_ids
from moml.types import Record

REMAINS = (
    "not removed: the trace in the common parameters w, and in shared statistics without names "
    "(column means and quantiles, scores, residuals); for that, train again without their rows"
)
COPIES = "not changed: other folders made from this one (adapt, export, --from), copies and backups"
ARRAYS = ("personal.safetensors", "tasks.safetensors")
CHANGED = {"table.json", "card.json", "tasks.json", "index.json", NAME, *ARRAYS}


def forget(run: str | os.PathLike[str], tasks: Sequence[str]) -> list[str]:
    """Remove all that is kept of some tasks; return lines on what was and was not removed."""
    folder = Path(run).resolve()
    if (folder / "run.json").exists():
        return [*forget_memories(folder, tasks), REMAINS, COPIES]
    work = folder.with_name(f".{folder.name}.forget")
    if not folder.is_dir() and not (work / "old").is_dir():
        raise ConfigError(f"{folder} is not the folder of a run")
    check_plain(work.parent, re.escape(work.name))
    with Lock(work, "moml forget"):
        try:
            with writing_to(folder):
                interrupted = _clean_up(folder, work)
                lines = _rewrite(folder, work, dict.fromkeys(tasks), interrupted)
        finally:
            if folder.exists():
                shutil.rmtree(work)
    return [*lines, REMAINS, COPIES]


def _clean_up(folder: Path, work: Path) -> bool:
    """Undo or finish what a killed process left; True if there was anything."""
    new, old = work / "new", work / "old"
    if not folder.exists():  # killed between the two renames
        os.rename(new if new.exists() and verify(new) is None else old, folder)
    left = [path for path in (new, old) if path.exists()]
    for path in left:
        shutil.rmtree(path)
    return bool(left)


def _rewrite(folder: Path, work: Path, tasks: dict[str, None], interrupted: bool) -> list[str]:
    """Replace the folder by one without these tasks."""
    about, name = _about(folder)
    index = read_json(folder / "index.json") if (folder / "index.json").exists() else {}
    stored = read_json(folder / "tasks.json") if (folder / "tasks.json").exists() else {}
    ids = stored.get("ids", [])
    there = {*ids, *index, *about.get("trained", []), *about.get("held_out", [])}
    missing = [id_ for id_ in tasks if id_ not in there]
    if missing and not interrupted:
        raise ConfigError(f"{folder} has no task {missing[0]!r}; nothing was changed")
    if len(missing) == len(tasks):
        return ["already removed; the files of the interrupted command are removed now"]
    new = work / "new"
    removed = {f"tasks/{Path(index[id_]['file']).name}" for id_ in tasks if id_ in index}
    skip = lambda at, names: [
        n
        for n in names
        if n == "__pycache__" or (Path(at) / n).relative_to(folder).as_posix() in removed | CHANGED
    ]
    shutil.copytree(folder, new, ignore=skip, copy_function=copy_plain)
    others = lambda ids: [id_ for id_ in ids if id_ not in tasks]
    lists = {key: others(about[key]) for key in ("trained", "held_out") if key in about}
    write_text(dumps(about | lists, indent=1) + "\n", new / name)
    if (folder / "index.json").exists():
        kept = {id_: index[id_] for id_ in others(index)}
        write_text(dumps(kept, indent=1) + "\n", new / "index.json")
    if (folder / "tasks.json").exists():
        stay = np.array([i for i, id_ in enumerate(ids) if id_ not in tasks], int)
        write_ids(new, others(ids), [stored["rows"][i] for i in stay])
        for file in ARRAYS:
            if (folder / file).exists():
                arrays = read_arrays(folder / file)
                parts = (stay[i : i + BLOCK] for i in range(0, max(len(stay), 1), BLOCK))
                blocks = ({name: a[some] for name, a in arrays.items()} for some in parts)
                write_blocks(new / file, len(stay), blocks)
    seal(new)
    os.rename(folder, work / "old")
    os.rename(new, folder)
    sync_folder(folder.parent)
    lines = [f"{len(tasks) - len(missing):,} forgotten: id, number of rows, personal parameters"]
    for column in (*about["columns"]["inputs"], about["columns"]["target"]):
        if {*column.get("words", []), *column.get("classes", [])} & set(tasks):
            lines.append(f"column {column['name']} has a category of that name, which stays")
    return lines


def _about(folder: Path) -> tuple[Record, str]:
    """The table.json of a run or the card of an export, and its name; every byte is checked."""
    if not (folder / "card.json").exists():
        return read_about(folder), "table.json"
    check_seal(folder)
    card = read_json(folder / "card.json")
    if card.get("kind") != "table":
        raise ConfigError(f"{folder} is the export of a network, which keeps nothing of tasks")
    return card, "card.json"
