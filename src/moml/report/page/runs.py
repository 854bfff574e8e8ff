"""Read a folder for the page: a training run, a sweep, or the run of a table."""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from moml.atomic import open_plain
from moml.config.config import Config, kind_of
from moml.config.problems import Problem, Table
from moml.errors import ConfigError, DataError
from moml.runs.record import record_of, resume_words
from moml.runs.sweeps import parts_of
from moml.storage.checkpoint import newest_info
from moml.storage.folder import in_use
from moml.storage.metrics import FIELDS, mark_of, read, verify
from moml.tabular.store import read_about, read_json, refused
from moml.types import Record


class Measure(NamedTuple):
    """The metric of a problem's scores."""

    axis: str  # on a chart
    words: str  # in a sentence
    higher: bool = False  # is better
    unit: str = ""
    of: str = "on unseen tasks"

    def say(self, value: float | int | None) -> str:
        """Format a score with its unit.

        >>> ACCURACY.say(93.25)
        '93.2\xa0%'
        """
        if value is None or not math.isfinite(value):
            return "–"
        return f"{value:.1f}{self.unit}" if self.unit else f"{value:.4g}"


ACCURACY = Measure("accuracy, %", "accuracy", True, "\u00a0%")
ERROR = Measure("mean squared error", "mean squared error")
LAST_ROWS = "on the tasks' last rows"
MEASURES = {
    "sine": ERROR,
    "synthetic": Measure("cross-entropy", "cross-entropy"),
    "episodes": ACCURACY,
    "clients": ACCURACY._replace(of="of the clients that took part"),
    "table": ACCURACY._replace(of=LAST_ROWS),
}
METRICS = {  # of the run of a table
    "rmse": Measure("root mean squared error", "root mean squared error"),
    "accuracy": ACCURACY,
    "log_loss": Measure("log-loss", "log-loss"),
}


def measure_of(problem: Problem) -> Measure:
    """The metric of a problem; that of a table depends on its target."""
    if isinstance(problem, Table) and not problem.classifies:
        return ERROR._replace(of=LAST_ROWS)
    usual = ACCURACY if problem.classifies else Measure("error", "error")
    return MEASURES.get(kind_of(problem), usual)


class State(NamedTuple):
    """Progress of a run: `kind` is good, wait or bad."""

    kind: str
    label: str
    detail: str = ""


class Trained(NamedTuple):
    """A run of `moml train`."""

    name: str
    folder: Path
    state: State
    config: Config
    record: Record
    measure: Measure
    rows: list[Record]  # of metrics

    @property
    def score(self) -> float | int | None:
        """The last score."""
        return next((r["score"] for r in reversed(self.rows) if r["score"] is not None), None)


class Swept(NamedTuple):
    """A run of `moml sweep`: `lines` has the metrics of each member of `settings`."""

    name: str
    folder: Path
    state: State
    config: Config
    record: Record
    measure: Measure
    settings: list[Record]
    lines: list[list[Record]]


class Tabled(NamedTuple):
    """A run of `moml train --data`, or of `moml adapt`."""

    name: str
    folder: Path
    state: State
    about: Record
    rows: list[Record]  # of scores
    tasks: int  # with personal parameters

    @property
    def metric(self) -> str:
        """The main metric."""
        return "rmse" if any(row["metric"] == "rmse" for row in self.rows) else "accuracy"

    @property
    def most(self) -> int:
        """The largest number of known rows that was scored."""
        return max(row["shots"] for row in self.rows)


Run = Trained | Swept | Tabled


def read_run(folder: Path, name: str) -> Run:
    """Read the run in a folder; raise a ConfigError if there is none."""
    if (folder / "table.json").is_file():
        return _tabled(folder, name)
    if not (folder / "run.json").exists():
        raise ConfigError(f"a run folder must hold run.json or table.json; got {folder}")
    record, config = record_of(folder)
    measure = measure_of(config.problem)
    if "grid" not in record:
        rows = _metrics(folder)
        state = _state(folder, config, [folder], [rows])
        return Trained(name, folder, state, config, record, measure, rows)
    try:
        parts = parts_of(folder, record)
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"cannot read {folder / 'run.json'}: {error}") from error
    every = [_metrics(part) for part, _ in parts]
    state = _state(folder, config, [part for part, _ in parts], every)
    settings = [setting for _, mine in parts for setting in mine]
    pick = lambda value, place: value[place] if isinstance(value, list) else value
    lines = [  # the metrics of each member
        [{key: pick(x, place) for key, x in row.items() if key != "cost"} for row in rows]
        for (_, mine), rows in zip(parts, every, strict=True)
        for place in range(len(mine))
    ]
    return Swept(name, folder, state, config, record, measure, settings, lines)


def _metrics(folder: Path) -> list[Record]:
    path = folder / "metrics.jsonl"
    found = newest_info(folder / "checkpoints")
    if found is not None and (problem := verify(path, mark_of(found[1]))):
        raise DataError(problem)
    rows = read(path) if path.exists() else []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not set(FIELDS) <= set(row):
            raise DataError(
                f"line {number} of {path} must have the fields {', '.join(FIELDS)}; got {row!r}"
            )
    return rows


def _state(
    folder: Path, config: Config, parts: Sequence[Path], rows: Sequence[list[Record]]
) -> State:
    """The state of a run, from the metrics of its parts, its lock and its log."""
    steps = [mine[-1]["iterations"] if mine else 0 for mine in rows]
    done = min(steps, default=0)
    if done >= config.iterations:
        return State("good", "finished")
    far = f"{done:,} of {config.iterations:,} iterations are done"
    if in_use(folder):
        return State("wait", "running", f"{far}: it was running when this page was made.")
    open_ = next(part for part, n in zip(parts, steps, strict=True) if n < config.iterations)
    log = open_ / "log.txt"
    text = ""
    with suppress(OSError), open_plain(log) as file:
        text = file.read().decode(errors="replace")
    # the error that ended the run; empty where it was started again since
    ends = re.findall(r"^\S+Z INFO (?:ended by (.*)|.*: from step \d+ of \d+)$", text, re.M)
    if ends and ends[-1].startswith("Diverged: "):
        return State("bad", "diverged", f"{far}; then {ends[-1].removeprefix('Diverged: ')}.")
    resume = resume_words(folder, config.plugin)
    return State("wait", "unfinished", f"{far}. Resume it with: {resume}")


def _tabled(folder: Path, name: str) -> Tabled:
    about, adapted = read_about(folder), (folder / "index.json").exists()
    tasks_file = "index.json" if adapted else "tasks.json"
    with refused(folder):
        rows, tasks = (read_json(folder / file) for file in ("evaluation.json", tasks_file))
        count = len(tasks if adapted else tasks["ids"])
    state = State("good", "personal models" if adapted else "finished")
    return Tabled(name, folder, state, about, rows, count)


def named(folders: Sequence[Path]) -> list[tuple[Path, str]]:
    """Each folder once, with its own name, or with its path if two names are equal.

    >>> [name for _, name in named([Path("a/run"), Path("b/run"), Path("a/run/")])]
    ['a/run', 'b/run']
    """
    distinct: dict[Path, Path] = {}
    for folder in folders:
        distinct.setdefault(folder.resolve(), folder)
    names = [path.name for path in distinct]
    unique = len(set(names)) == len(names)
    return [(f, n if unique else str(f)) for f, n in zip(distinct.values(), names, strict=True)]
