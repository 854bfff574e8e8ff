"""What the trials are made on: runs, a sweep, tables, exports and caches, made once and copied."""

import json
import os
import re
import shutil
import traceback
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from moml.storage.rows_file import WORD, broken
from tests.chaos.children import moml
from tests.support.small_run import small_run, visits

ITERATIONS, STRETCH = 400, 40
SINE = (
    f"sine --problem.hidden 4 --problem.n 10 --iterations {ITERATIONS} --log-every {STRETCH} "
    "--score-every 200 --save-seconds 0 --test-tasks 5 --test-steps 1 --k 2 --keep 20"
).split()
RUN = (*SINE, "--method", "moml-v1")
DISK = (*SINE, "--method", "moml-v2", "--memory", "disk")
GRID = ("--grid", "eta=.002,.005", "--seeds", "1")
WHO = "pers\u00f6n-1"
ARROW = find_spec("pyarrow") is not None  # files of tables are read and written
Content = dict[str, bytes]


def forked(work: Callable[[], None]) -> None:
    """Do something in a process of its own, which may compute; an error ends the harness."""
    if not (pid := os.fork()):
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit("chaos: the process above failed")


def make(root: Path, *, short: bool) -> None:
    """Make all that is not there; in the short form, few runs, and no table is trained."""
    folder = root / "made"
    folder.mkdir(parents=True, exist_ok=True)
    if ARROW and not (folder / "rows.csv").exists():
        forked(lambda: _files(folder, short=short))
    for words in _commands(folder, short=short):
        if words[-1].exists() or (words[0] == "adapt" and not ARROW) or _missing(words):
            continue
        done = moml(root, *words)
        if done.code:
            raise SystemExit(f"chaos: {words}: {done.error}")
    for name in filter(lambda name: (folder / name).exists(), ("run", "disk", "swept")):
        half = folder / f"{name}-half"  # as if killed half way
        if half.exists():
            continue
        shutil.copytree(folder / name, half)
        for path in half.rglob("checkpoints/*"):
            if int(path.name) > ITERATIONS // 2:
                shutil.rmtree(path)
        (half / "rows.json").unlink(missing_ok=True)


def _missing(words: tuple[object, ...]) -> bool:
    """Whether a command reads a table that could not be made here."""
    return any(isinstance(word, Path) and not word.exists() for word in words[:-1])


def _commands(folder: Path, *, short: bool) -> Iterator[tuple[object, ...]]:
    """The runs, each with another of its kind but for the short form."""
    rows, new = folder / "rows.csv", folder / "new.csv"
    for seed, other in enumerate([""] if short else ["", "-other"]):
        given = ("--seed", seed, "--out")
        yield "train", *RUN, *given, folder / f"run{other}"
        yield "train", *DISK, *given, folder / f"disk{other}"
        table = folder / f"table{other}"
        if not short:
            yield "sweep", *RUN, *GRID, *given, folder / f"swept{other}"
            yield "train", "--data", rows, "--task", "person", "--target", "y", *given, table
        yield "adapt", table, "--data", new, "--out", folder / f"adapted{other}"
        yield "export", table, "--out", folder / f"exported{other}"


def _files(folder: Path, *, short: bool) -> None:
    """The tables; in the short form also a run that was not trained."""
    from moml.data.table.write import write_table

    write_table(visits(12, 0), folder / "rows.csv")
    write_table(visits(4, 1, first=8), folder / "new.csv")
    if short:
        small_run(folder / "table", visits(12, 0), ["summary"])


def tree(folder: Path) -> Content:
    """Every file below a folder, without what says who used it when, and what a kill leaves."""
    if folder.is_file():
        return {folder.name: folder.read_bytes()}
    told = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and path.name not in ("lock", "log.txt"):
            told[name] = path.read_bytes()
    return told


def page(file: Path) -> Content:
    """A page, without where and when it was made."""
    text = file.read_text().replace(str(file.parent), "")
    return {file.name: re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", text).encode()}


def trained(folder: Path) -> Content:
    """The last states, metrics, memories and rows of a run or a sweep."""
    told = {}
    for part in (folder, *sorted(folder.glob("part-*"))):
        if found := steps(part):
            state = part / "checkpoints" / f"{found[-1]:010d}" / "state.safetensors"
            told[f"{part.name} state {found[-1]}"] = state.read_bytes()
        if (part / "metrics.jsonl").exists():
            told[f"{part.name} metrics"] = (part / "metrics.jsonl").read_bytes()
    if (folder / "memory" / "rows").exists():
        told["memory"] = _memories(folder / "memory")
    if (folder / "rows.json").exists():
        rows = json.loads((folder / "rows.json").read_text())
        told["rows"] = repr([row | {"seconds": 0} for row in rows]).encode()
    return told


def _memories(folder: Path) -> bytes:
    """The rows of a store without their checksums, which no other store has; these must hold."""
    about = json.loads((folder / "about.json").read_text())
    rows = np.fromfile(folder / "rows", np.uint8).reshape(about["tasks"], -1)
    wrong = broken(rows, np.arange(len(rows)), int(about["id"], 16))
    return rows[:, :-WORD].tobytes() + f"damaged: {wrong}".encode() * len(wrong)


def steps(folder: Path) -> list[int]:
    """The steps with a checkpoint whose seal holds."""
    from moml.storage.checkpoint import stored
    from moml.storage.manifest import verify

    found = stored(folder / "checkpoints").items()
    return [step for step, path in found if verify(path) is None]


def progress(folder: Path) -> int:
    """All that is saved of a run, as a number that no kill may lessen."""
    return sum(max(steps(part), default=0) for part in (folder, *folder.glob("part-*")))
