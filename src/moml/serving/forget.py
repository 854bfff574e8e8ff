"""Remove tasks from a run: their ids, memories and personal parameters leave every file.

Categories of input columns can be removed as well. A random text takes the place of each, so that
the others keep their features, and the category is encoded as one that training had not.

A table's run, a folder of `moml adapt` and an export are rewritten without the tasks in
`.NAME.forget/new`; then the old folder moves to `.NAME.forget/old`, the new one takes its place,
and the old one is removed. After a kill at any moment, the same command again finishes the work.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from glob import escape
from json import dumps
from pathlib import Path

import numpy as np

from moml.errors import ConfigError, printable
from moml.serving.forget_memory import forget_memories
from moml.storage.arrays import read_arrays
from moml.storage.files import copy_plain, write_text, writing_to
from moml.storage.folder import Lock, check_plain
from moml.storage.manifest import NAME, seal, sync_folder, verify
from moml.tabular.store import (
    BLOCK,
    check_seal,
    read_about,
    read_json,
    refused,
    write_blocks,
    write_ids,
)
from moml.types import Record

REMAINS = (
    "not removed: the trace in the common parameters w and in shared statistics (column means and "
    "quantiles, scores, residuals); for that, train again without their rows"
)
COPIES = (
    "not changed: what was made from this folder (adapt, export, --from, predictions, reports), "
    "copies and backups"
)
LISTED = 20  # categories in a line
REMOVED = "removed-"  # begins the text in the place of a removed category
ARRAYS = ("personal.safetensors", "tasks.safetensors")
CHANGED = {"table.json", "card.json", "tasks.json", "index.json", NAME, *ARRAYS}


def forget(
    run: str | os.PathLike[str], tasks: Sequence[str], categories: Sequence[str] = ()
) -> list[str]:
    """Remove all that is kept of some tasks, and some categories, each as "COLUMN=CATEGORY".

    Returns lines on what was and was not removed.
    """
    folder = Path(run).resolve()
    if (folder / "run.json").exists():
        if categories:
            raise ConfigError(f"{folder} is not the run of a table: it has no categories")
        return [*forget_memories(folder, tasks), REMAINS, COPIES]
    work = folder.with_name(f".{folder.name}.forget")
    if not folder.is_dir() and not (work / "old").is_dir():
        raise ConfigError(f"{folder} is not the folder of a run")
    check_plain(work.parent, re.escape(work.name))
    with Lock(work, "moml forget"), refused(folder):
        try:
            with writing_to(folder):
                interrupted = _clean_up(folder, work)
                lines = _rewrite(folder, work, dict.fromkeys(tasks), categories, interrupted)
        finally:
            if folder.exists():
                shutil.rmtree(work)
    left = folder.parent.glob(f".{escape(folder.name)}.*.partial")  # see `tabular.store.building`
    lines += [f"not changed: {path}, which a killed command left; delete it" for path in left]
    return [*map(printable, lines), REMAINS, COPIES]


def _clean_up(folder: Path, work: Path) -> bool:
    """Undo or finish what a killed process left; True if there was anything."""
    new, old = work / "new", work / "old"
    if not folder.exists():  # killed between the two renames
        os.rename(new if new.exists() and verify(new) is None else old, folder)
    left = [path for path in (new, old) if path.exists()]
    for path in left:
        shutil.rmtree(path)
    return bool(left)


def _rewrite(
    folder: Path,
    work: Path,
    tasks: dict[str, None],
    categories: Sequence[str],
    interrupted: bool,
) -> list[str]:
    """Replace the folder by one without these tasks and categories."""
    about, name = _about(folder)
    index = read_json(folder / "index.json") if (folder / "index.json").exists() else {}
    stored = read_json(folder / "tasks.json") if (folder / "tasks.json").exists() else {}
    ids = stored.get("ids", [])
    there = {*ids, *index, *about.get("trained", []), *about.get("held_out", [])}
    missing = [id_ for id_ in tasks if id_ not in there]
    if missing and not interrupted:
        raise ConfigError(f"{folder} has no task {missing[0]!r}; nothing was changed")
    words = _remove(about["columns"], categories)
    unknown = [each for each in categories if each not in words]
    if unknown and not interrupted:
        must = "it must be COLUMN=CATEGORY of an input column"
        raise ConfigError(f"{folder} has no category {unknown[0]!r}; {must}")
    others = lambda ids: [id_ for id_ in ids if id_ not in tasks]
    lists = {key: others(about[key]) for key in ("trained", "held_out") if key in about}
    left = [*_left({k: v for k, v in about.items() if k not in lists}, name, tasks)]
    if len(missing) == len(tasks) and not words:
        return ["already removed; the files of the interrupted command are removed now", *left]
    new = work / "new"
    removed = {f"tasks/{Path(index[id_]['file']).name}" for id_ in tasks if id_ in index}
    skip = lambda at, names: [
        n
        for n in names
        if n == "__pycache__" or (Path(at) / n).relative_to(folder).as_posix() in removed | CHANGED
    ]
    shutil.copytree(folder, new, ignore=skip, copy_function=copy_plain)
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
    lines = []
    if count := len(tasks) - len(missing):
        lines = [f"{count:,} forgotten: id, number of rows, personal parameters"]
    if words:
        lines.append(f"{len(words):,} removed: categories, which are unknown ones from now on")
    return [*lines, *left]


def _remove(columns: Record, categories: Sequence[str]) -> set[str]:
    """Put a random text in the place of each of these categories; return those that there were."""
    found = set()
    for column in columns["inputs"]:
        for words in (column["words"], column.get("levels", [])):
            for i, word in enumerate(words):
                if (name := f"{column['name']}={word}") in categories:
                    words[i] = REMOVED + secrets.token_hex(8)
                    found.add(name)
    return found


def _left(about: Record, file: str, tasks: dict[str, None]) -> Iterator[str]:
    """Lines on the texts that stay: those with an id in them, then all categories and classes."""
    for id_ in tasks:
        number = not re.search(r"[^\W\d]", id_)  # a text has it as a part by chance
        word = rf"\A{re.escape(id_)}\Z" if number else rf"(?<!\w){re.escape(id_)}(?!\w)"
        for place in dict.fromkeys(_mentions(about, re.compile(word))):
            yield f"not removed: {id_!r} in {file}, {place}"
    for column in about["columns"]["inputs"]:
        every = [*column["words"], *column.get("levels", [])]
        name, words = column["name"], [w for w in every if not w.startswith(REMOVED)]
        for i in range(0, len(words), LISTED):
            some = ", ".join(words[i : i + LISTED])
            yield f"not removed: categories of {name} ({some}): see --category '{name}=...'"
    classes = about["columns"]["target"]["classes"]
    for i in range(0, len(classes), LISTED):
        some = ", ".join(classes[i : i + LISTED])
        yield f"not removed: classes of {about['target']} ({some})"


def _mentions(value: object, word: re.Pattern[str], place: str = "") -> Iterator[str]:
    """Where a word is in JSON: in a text, or in the name of a column that is left out."""
    if isinstance(value, str) and word.search(value):
        yield place
    elif isinstance(value, list):
        for inner in value:
            yield from _mentions(inner, word, place)
    elif isinstance(value, dict):
        own = f"{place}.{value['name']}" if "name" in value else place
        for key, inner in value.items():
            if own.endswith("left_out") and word.search(key):
                yield own
            yield from _mentions(inner, word, f"{own}.{key}".lstrip("."))


def _about(folder: Path) -> tuple[Record, str]:
    """The table.json of a run or the card of an export, and its name; every byte is checked."""
    if not (folder / "card.json").exists():
        return read_about(folder), "table.json"
    check_seal(folder)
    card = read_json(folder / "card.json")
    if "client" in card:
        raise ConfigError(f"{folder} is the model of client {card['client']}: remove the folder")
    if card.get("kind") != "table":
        raise ConfigError(f"{folder} is the export of a network, which keeps nothing of tasks")
    return card, "card.json"
