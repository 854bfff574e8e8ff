"""What a folder holds, as the page needs it: a training run, a sweep, or the run of a table."""

import json
import math
import re
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from moml.config.config import Config, classifies, kind_of
from moml.config.problems import Problem, Table
from moml.errors import CheckpointError, ConfigError, DataError, check_count
from moml.runs.record import record_of
from moml.storage.folder import in_use
from moml.storage.manifest import verify
from moml.storage.metrics import FIELDS, read
from moml.training.sweep import grid_of

Row = dict[str, Any]


class Measure(NamedTuple):
    """What the scores of a problem are."""

    axis: str  # on a picture
    words: str  # in a sentence
    higher: bool = False
    unit: str = ""
    of: str = "on unseen tasks"

    def say(self, value: float | None) -> str:
        """A score in words.

        >>> Measure("accuracy, %", "accuracy", True, "\u00a0%").say(93.25)
        '93.2\xa0%'
        """
        if value is None or not math.isfinite(value):
            return "–"
        return f"{value:.1f}{self.unit}" if self.unit else f"{value:.4g}"


MEASURES = {
    "sine": Measure("mean squared error", "mean squared error"),
    "synthetic": Measure("cross-entropy", "cross-entropy"),
    "episodes": Measure("accuracy, %", "accuracy", True, "\u00a0%"),
    "clients": Measure("accuracy, %", "accuracy", True, "\u00a0%", "of the clients that took part"),
    "table": Measure("accuracy, %", "accuracy", True, "\u00a0%", "on the tasks' last rows"),
}
ERROR = Measure("mean squared error", "mean squared error", of="on the tasks' last rows")


def measure_of(problem: Problem) -> Measure:
    """What the scores of a problem are; a table's are of classes or of numbers."""
    numbers = isinstance(problem, Table) and not classifies(problem)
    return ERROR if numbers else MEASURES[kind_of(problem)]


class State(NamedTuple):
    """How far a run has come: good, wait or bad; a word for it, and what there is to say."""

    kind: str
    word: str
    told: str = ""


class Trained(NamedTuple):
    """A run of `moml train`."""

    name: str
    folder: Path
    config: Config
    record: Row
    rows: list[Row]  # of metrics
    state: State

    @property
    def measure(self) -> Measure:
        return measure_of(self.config.problem)

    @property
    def score(self) -> float | None:
        """The last one."""
        scores = [row["score"] for row in self.rows if row["score"] is not None]
        return scores[-1] if scores else None


class Swept(NamedTuple):
    """A run of `moml sweep`: `lines` has the metrics of each member of `settings`."""

    name: str
    folder: Path
    config: Config
    record: Row
    settings: list[Row]
    lines: list[list[Row]]
    state: State

    @property
    def measure(self) -> Measure:
        return measure_of(self.config.problem)


class Tabled(NamedTuple):
    """A run of `moml train --data`, or of `moml adapt`."""

    name: str
    folder: Path
    about: Row
    rows: list[Row]  # of scores
    tasks: int  # whose personal parameters it keeps
    state: State


Run = Trained | Swept | Tabled


def read_run(folder: Path, name: str) -> Run:
    """The run in a folder; a ConfigError where there is none."""
    if (folder / "table.json").is_file():
        return _tabled(folder, name)
    if not (folder / "run.json").exists():
        raise ConfigError(f"{folder} holds no run: there is no run.json and no table.json in it")
    record, config = record_of(folder)
    if "grid" in record:
        return _swept(folder, name, record, config)
    rows = _metrics(folder)
    return Trained(name, folder, config, record, rows, _state([folder], [rows], config, folder))


def _metrics(folder: Path) -> list[Row]:
    path = folder / "metrics.jsonl"
    rows = read(path) if path.exists() else []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not set(FIELDS) <= set(row):
            raise DataError(f"line {number} of {path} lacks some of {', '.join(FIELDS)}")
    return rows


def _state(parts: list[Path], rows: list[list[Row]], config: Config, folder: Path) -> State:
    """How a run stands, by its metrics, its lock and the last words of its log."""
    done = min((mine[-1]["iterations"] if mine else 0 for mine in rows), default=0)
    if done >= config.iterations:
        return State("good", "finished")
    far = f"{done:,} of {config.iterations:,} iterations are done"
    if in_use(folder):
        return State("wait", "running", f"{far}: it was at work when this page was made.")
    last = next((part for part, mine in zip(parts, rows, strict=True) if not _full(mine, config)))
    told = _end(last / "log.txt")
    if told.startswith("Diverged: "):
        return State("bad", "diverged", f"{far}; then {told.removeprefix('Diverged: ')}.")
    resume = f"moml resume {quote(str(folder))}"
    return State("wait", "unfinished", f"{far}. It goes on with: {resume}")


def _full(rows: list[Row], config: Config) -> bool:
    return bool(rows) and rows[-1]["iterations"] >= config.iterations


def _end(log: Path) -> str:
    """Why a run did not come to its end: what its log says after it was last begun."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.findall(r"^\S+Z INFO (?:ended by (.*)|.*: from step \d+ of \d+)$", text, re.M)
    return found[-1] if found else ""


def _swept(folder: Path, name: str, record: Row, config: Config) -> Swept:
    try:
        settings, size = grid_of(record["grid"], record["seeds"]), record["members"]
        check_count("members", size)
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"cannot read {folder / 'run.json'}: {error}") from error
    starts = range(0, len(settings), size)
    parts = [folder / f"part-{number:03d}" for number in range(len(starts))]
    rows = [_metrics(part) for part in parts]
    state = _state(parts, rows, config, folder)
    lines = [
        [_member(row, place) for row in mine]
        for start, mine in zip(starts, rows, strict=True)
        for place in range(min(size, len(settings) - start))
    ]
    return Swept(name, folder, config, record, settings, lines, state)


def _member(row: Row, place: int) -> Row:
    """One member's line of metrics."""
    own = lambda value: value[place] if isinstance(value, list) else value
    return {key: own(value) for key, value in row.items() if key != "cost"}


def _tabled(folder: Path, name: str) -> Tabled:
    wrong = verify(folder)
    if wrong:
        raise CheckpointError(f"{folder} cannot be trusted: {wrong}")
    try:
        load = lambda file: json.loads((folder / file).read_text(encoding="utf-8"))
        about, rows = load("table.json"), load("evaluation.json")
        each = (folder / "index.json").exists()
        tasks = len(load("index.json") if each else load("tasks.json")["ids"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error
    state = State("good", "personal models" if each else "finished")
    return Tabled(name, folder, about, rows, tasks, state)


def named(folders: list[Path]) -> list[tuple[Path, str]]:
    """Each folder once, with a name: its own, or where two have the same, all that was given.

    >>> [name for _, name in named([Path("a/run"), Path("b/run"), Path("a/run/")])]
    ['a/run', 'b/run']
    """
    apart: dict[Path, Path] = {}
    for folder in folders:
        apart.setdefault(folder.resolve(), folder)
    names = [place.name for place in apart]
    alone = len(set(names)) == len(names)
    return [(f, name if alone else str(f)) for f, name in zip(apart.values(), names, strict=True)]
