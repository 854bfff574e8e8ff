"""A summary of a table and its columns, in lines for people; rows of its training for services.

A run's folder is written as a whole at the end, so what a service keeps in files is beside it, in
OUT-logs.
"""

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Int

from moml.algorithms.tabular.intervals import Residuals, coverage
from moml.algorithms.tabular.rivals import row_losses
from moml.data.table.columns import Columns
from moml.data.table.frame import Table
from moml.data.table.groups import Groups
from moml.data.table.inputs import CLIP, Input
from moml.data.table.target import written
from moml.errors import ConfigError
from moml.storage.files import writable_folder
from moml.storage.sinks import About, check_sinks, open_sinks
from moml.tabular.model import TableModel
from moml.tabular.rows import CHUNK, Rows, split_rows
from moml.tabular.score import COLD
from moml.tabular.store import free_place
from moml.types import Record

SHOWN = 8  # names in a line
TASKS, INPUTS = 200, 50  # that importance is computed of and for, at most


def describe(
    columns: Columns, table: Table, groups: Groups, categorical: Collection[str] = ()
) -> list[str]:
    """Rows and tasks, the target, the inputs by kind, what is missing, what is left out.

    Of texts that look like numbers a line says so, unless they are `categorical`.

    >>> from moml.data.table.columns import learn_columns
    >>> from moml.data.table.groups import group
    >>> from moml.data.table.frame import as_table
    >>> table = as_table({"user": ["a", "a", "b"], "x": [1, 2, 4], "z": [5, 5, 5], "y": [0, 3, 9]})
    >>> columns = learn_columns(table, "y", exclude=["user"])
    >>> print("\\n".join(describe(columns, table, group(table, "user"))))
    the table: 3 rows of 2 tasks, 1 to 2 rows a task, median 1.5
    1 task has one row: it can be adapted to, not scored
    target y: a number, mean 4, standard deviation 3.74
    1 number as input: x
    no value is missing
    left out: z (one value in all training tasks)
    """
    lines = [_rows(table, groups)]
    single = int((groups.sizes == 1).sum())
    if single:
        has = "task has" if single == 1 else "tasks have"
        it = "it" if single == 1 else "they"
        lines.append(f"{single:,} {has} one row: {it} can be adapted to, not scored")
    lines += [_target(columns, table), *_inputs(columns), *_written(columns, table, categorical)]
    lines += _missing(columns, table)
    lines += _far(columns, table)
    if columns.left_out:
        why = [f"{name} ({why})" for name, why in columns.left_out.items()]
        lines.append(f"left out: {_few(why)}")
    return lines


def _rows(table: Table, groups: Groups) -> str:
    sizes = groups.sizes
    files = f" in {len(table.files):,} files" if len(table.files) > 1 else ""
    spread = f"{sizes.min():,} to {sizes.max():,} rows a task, median {np.median(sizes):g}"
    return f"{table.name}: {table.rows:,} rows{files} of {len(groups.ids):,} tasks, {spread}"


def _target(columns: Columns, table: Table) -> str:
    name, _, scale, classes = columns.target
    if classes:
        return f"target {name}: {len(classes)} classes: {_few(classes)}"
    return f"target {name}: a number, mean {scale.mean:.3g}, standard deviation {scale.std:.3g}"


def _inputs(columns: Columns) -> list[str]:
    lines = []
    for kind, one in {"number": "number", "text": "category", "time": "date"}.items():
        found = [given for given in columns.inputs if given.kind == kind]
        if not found:
            continue
        names = [given.name for given in found]
        if kind == "text":
            names = [f"{given.name} ({_levels(given)})" for given in found]
        if kind == "time":
            parts = lambda given: ", ".join(["elapsed", *given.cycles])
            names = [f"{given.name} ({parts(given)})" for given in found]
        many = one if len(found) == 1 else {"category": "categories"}.get(one, f"{one}s")
        lines.append(f"{len(found)} {many} as input: {_few(names)}")
    return lines or ["no input: a task is predicted from its known rows alone"]


def _levels(given: Input) -> str:
    """How many categories have a feature each, and what the others have."""
    rare = f" and {len(given.levels):,} by their mean" if given.levels else ""
    return f"{len(given.words)}{'+' if given.other else ''}{rare}"


def _written(columns: Columns, table: Table, categorical: Collection[str]) -> list[str]:
    """Texts that an option reads as numbers."""
    names = [given.name for given in columns.inputs if given.kind == "text"]
    names += [columns.target.name] if columns.target.kind == "text" else []
    names = [name for name in names if name not in categorical]
    found = {name: written(table.columns[name]) for name in names if name in table.columns}
    return [f"column {name} has texts: {said}" for name, said in found.items() if said]


def _missing(columns: Columns, table: Table) -> list[str]:
    found = []
    for given in columns.inputs:
        column = table.columns.get(given.name)
        count = 0 if column is None else int(column.missing.sum())
        if count and given.indicator:
            found.append(f"{given.name} {count:,}")
    said = "missing values, marked by an indicator; a number or date becomes its training mean"
    lines = [f"{said}: {_few(found)}"] if found else []
    return [*lines, *columns.unseen(table)] or ["no value is missing"]


def _far(columns: Columns, table: Table) -> list[str]:
    found = []
    scales = [(given.name, given.scale) for given in columns.inputs if given.kind == "number"]
    target = columns.target
    scales += [] if target.classes else [(target.name, target.scale)]
    for name, scale in scales:
        column = table.columns.get(name)
        if column is None or not scale.std:
            continue
        count = int((np.abs(scale(column.values)) >= CLIP).sum())
        if count:
            found.append(f"{name} {count:,}")
    far = f"values {CLIP:g} standard deviations from the mean and more, held there"
    return [f"{far}: {_few(found)}"] if found else []


def _few(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN:,} more" if names[SHOWN:] else ""
    return ", ".join(names[:SHOWN]) + more


LEVEL = 0.9  # of the intervals whose coverage is measured


def interval_coverage(residuals: Residuals, say: Callable[[str], None]) -> list[Record]:
    """How many rows intervals of `LEVEL` hold, by number of known rows, each task by the others.

    `say` gets a line on the largest number of known rows.
    """
    rows: list[Record] = []
    for known, some in residuals.items():
        row = {"shots": known, "level": LEVEL, "tasks": len(np.unique(some[:, 1]))}
        rows.append(row | {"share": coverage(some, LEVEL)})
    for row in rows[-1:]:
        if row["share"] is None:
            say(f"intervals of {LEVEL} are infinite: {row['tasks']} scored tasks are too few")
        else:
            after = f"{row['shots']} known row{'' if row['shots'] == 1 else 's'}"
            held = f"hold {row['share']:.2f} of a task's rows after {after}"
            say(f"intervals of {LEVEL} {held}: {row['tasks']:,} tasks, each by the others")
    return rows


def importance(
    columns: Columns,
    apart: Sequence[tuple[TableModel, Int[np.ndarray, " _"]]],
    given: Rows,
    seed: int,
) -> list[Record]:
    """The score on tasks that a model has not seen with each input permuted over all their rows.

    `apart` are models, each with such tasks. Known and predicted rows are permuted alike, so that
    the input says nothing of a row nor of its task. A list of numbers is one input. At most `TASKS`
    tasks and `INPUTS` inputs; the rows have `input`, `metric`, `score` with all inputs and
    `permuted`, the most important first.
    """
    base_name = lambda one: re.sub(r"\[\d+\]$", "", one.name)
    names = np.array([base_name(one) for one in columns.inputs for _ in one.features])
    if not len(names):
        return []
    model, rng = apart[0][0], np.random.default_rng([seed, 8])
    owner = {int(i): place for place, (_, tasks) in enumerate(apart) for i in tasks}
    tasks = sorted(rng.permutation([*owner])[:TASKS].tolist(), key=lambda i: owner[i])
    some, classes = [given.groups.rows(i) for i in tasks], model.shape.classes
    both = split_rows(some, model.shots, model.shape.ordered, rng, most=COLD)
    sizes = [len(rows) for rows in (*both.support, *both.query)]
    places = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])  # among the rows taken
    support, query = places[: len(some)], places[len(some) :]
    rows = np.concatenate([*both.support, *both.query])
    x, y = given.x[rows], given.y[rows]

    def answers(place: int, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Of the tasks of a model, for several versions of the inputs at once."""
        mine = [j for j, i in enumerate(tasks) if owner[i] == place]
        asked = np.concatenate([query[j] for j in mine])
        which = np.repeat(np.arange(len(mine)), [len(query[j]) for j in mine])
        versions, every = range(len(inputs)), np.concatenate(inputs)
        known = [support[j] + v * len(x) for v in versions for j in mine]
        own = apart[place][0].personal(every, np.tile(y, len(inputs)), known)
        of = np.concatenate([which + v * len(mine) for v in versions])
        at = np.concatenate([asked + v * len(x) for v in versions])
        return np.stack(np.split(apart[place][0].answers(own, of, every[at]), len(inputs)))

    def scores(inputs: Sequence[np.ndarray]) -> list[float]:
        each = [answers(place, inputs) for place in sorted({owner[i] for i in tasks})]
        found = np.concatenate(each, axis=1)
        loss = row_losses(found, y[np.concatenate(query)], classes).mean(axis=1)
        return (loss if classes else np.sqrt(loss) * columns.target.scale.std).tolist()

    shown = [*dict.fromkeys(names.tolist())][:INPUTS]
    versions = [x, *(np.where(names == name, x[rng.permutation(len(x))], x) for name in shown)]
    at_once = max(1, CHUNK // len(tasks))
    parts = [versions[i : i + at_once] for i in range(0, len(versions), at_once)]
    [base, *permuted] = [score for part in parts for score in scores(part)]
    metric = "log_loss" if classes else "rmse"
    found = [
        {"input": name, "metric": metric, "score": base, "permuted": score}
        for name, score in zip(shown, permuted, strict=True)
    ]
    return sorted(found, key=lambda row: -row["permuted"])


def logs_place(out: Path | None, names: Sequence[str]) -> Path | None:
    """The folder for what services keep of a run in `out`, checked; None without services."""
    check_sinks(names)
    if not names:
        return None
    if out is None:
        raise ConfigError("log needs out, the folder of a run; got out=None")
    return free_place(out.with_name(f"{out.name}-logs"))


@contextmanager
def open_logs(
    names: Sequence[str], place: Path | None, config: Record
) -> Iterator[Callable[[str], Callable[[Record], None]]]:
    """Yield `phase(prefix)`: a function that logs rows, each of their names as PREFIX/NAME.

    A phase counts its steps on from the last step of the phase before it.
    """
    if place is None:
        yield lambda prefix: lambda row: None
        return
    given = {key: value for key, value in config.items() if value is not None}
    about = About(given, name=place.name.removesuffix("-logs"))
    last = 0
    with ExitStack() as stack:
        try:
            write = stack.enter_context(open_sinks(names, writable_folder(place), about, 0))
        except ConfigError:
            shutil.rmtree(place, ignore_errors=True)  # or the next try would find it
            raise

        def phase(prefix: str) -> Callable[[Record], None]:
            begin = last

            def log(row: Record) -> None:
                nonlocal last
                last = begin + row["step"]
                values = {f"{prefix}/{key}": value for key, value in row.items() if key != "step"}
                write({"step": last} | values)

            return log

        yield phase


def scores_row(scores: Iterable[Record]) -> Record:
    """The mean scores as a row of metrics; step 0 of a phase is the last step before it.

    >>> scores_row([{"model": "personal", "shots": 5, "metric": "rmse", "mean": 0.5}])
    {'step': 0, 'rmse/personal/5': 0.5}
    """
    name = lambda row: f"{row['metric']}/{row['model']}/{row['shots']}"
    return {"step": 0} | {name(row): row["mean"] for row in scores}
