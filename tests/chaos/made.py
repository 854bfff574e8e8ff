"""What the trials are made on: runs, a sweep, tables, exports and caches, made once and copied."""

import json
import os
import re
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

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


def make(root: Path, *, tables: bool) -> None:
    """Make all; without `tables`, those are not trained."""
    folder = root / "made"
    folder.mkdir(parents=True)
    forked(lambda: _files(folder, tables=tables))
    table = ("--task", "person", "--target", "y", "--seed", "0")
    commands = [
        ("train", *RUN, "--out", folder / "run"),
        ("train", *RUN, "--seed", "1", "--out", folder / "run-other"),
        ("train", *DISK, "--out", folder / "disk"),
        ("train", *DISK, "--seed", "1", "--out", folder / "disk-other"),
        ("sweep", *RUN, *GRID, "--out", folder / "swept"),
        ("sweep", *RUN, *GRID, "--seed", "1", "--out", folder / "swept-other"),
    ]
    if tables:
        rows = folder / "rows.csv"
        commands.append(("train", "--data", rows, *table, "--out", folder / "table"))
    for name in ("table", "table-other"):
        out = name.replace("table", "exported")
        adapted = name.replace("table", "adapted")
        commands.append(
            ("adapt", folder / name, "--data", folder / "new.csv", "--out", folder / adapted)
        )
        commands.append(("export", folder / name, "--out", folder / out))
    for words in commands:
        done = moml(root, *words)
        if done.code:
            raise SystemExit(f"chaos: {words}: {done.error}")
    for name in ("run", "disk", "swept"):  # as if killed half way
        half = folder / f"{name}-half"
        shutil.copytree(folder / name, half)
        for path in half.rglob("checkpoints/*"):
            if int(path.name) > ITERATIONS // 2:
                shutil.rmtree(path)
        (half / "rows.json").unlink(missing_ok=True)


def _files(folder: Path, *, tables: bool) -> None:
    """The tables, and runs on them that were not trained."""
    from moml.data.table.write import write_table

    write_table(visits(12, 0), folder / "rows.csv")
    write_table(visits(4, 1, first=8), folder / "new.csv")
    for seed, name in enumerate(["table", "table-other"]):
        if not (tables and name == "table"):
            small_run(folder / name, visits(12, seed), ["summary"])


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
        told["memory"] = (folder / "memory" / "rows").read_bytes()
    if (folder / "rows.json").exists():
        rows = json.loads((folder / "rows.json").read_text())
        told["rows"] = repr([row | {"seconds": 0} for row in rows]).encode()
    return told


def steps(folder: Path) -> list[int]:
    """The steps with a checkpoint whose seal holds."""
    from moml.storage.manifest import verify

    found = sorted((folder / "checkpoints").glob("[0-9]" * 10))
    return [int(path.name) for path in found if verify(path) is None]


def progress(folder: Path) -> int:
    """All that is saved of a run, as a number that no kill may lessen."""
    return sum(max(steps(part), default=0) for part in (folder, *folder.glob("part-*")))
