"""Predictions by a trained table, and personal models of further tasks."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from moml.algorithms.tabular.intervals import around, bounds
from moml.algorithms.tabular.members import PersonalParams
from moml.data.table.columns import Columns
from moml.data.table.groups import Groups, group
from moml.data.table.write import extend_table
from moml.errors import ConfigError
from moml.tabular.read import load_table_run
from moml.tabular.score import unadapted
from moml.tabular.source import Rows, Source, check_output, read, rows_of
from moml.tabular.store import (
    BLOCK,
    TableRun,
    building,
    free_place,
    joined,
    kept,
    write_each_task,
    write_model,
)
from moml.tabular.update import extended
from moml.training.progress import bar


class Predicted(NamedTuple):
    """New columns for the rows of a table, and remarks on them for people."""

    columns: dict[str, np.ndarray]
    remarks: list[str]


def predict_table(
    run: TableRun,
    data: Source,
    *,
    adapt_on: Source | None = None,
    interval: float | None = None,
    progress: bool = False,
) -> Predicted:
    """Predictions for rows of any tasks, in order; rows of `adapt_on` are learned from first.

    A task that the run knows is predicted by its own parameters, one without any rows by the model
    that is best for such tasks. `interval`: the share of targets between `lower` and `upper`.
    """
    columns, task = run.columns, run.about["task"]
    if interval is not None:
        _check_interval(run, interval)
    table = read(data, [*columns.names, task], [task, *columns.text])
    groups, x = group(table, task), columns.encode(table)
    remarks = columns.remarks(table)
    del table
    later = None if adapt_on is None else rows_of(run, adapt_on)
    given, known = _answers(run, groups, x, later, progress)
    owner = np.repeat(np.arange(len(groups.ids)), groups.sizes)
    lacking = owner[known[groups.order] == 0]
    if len(lacking):
        tasks = f"{len(np.unique(lacking)):,} of {len(groups.ids):,} tasks"
        rows = f"{len(lacking):,} of {len(x):,} rows"
        remarks.append(f"nothing is known of {tasks} ({rows}): predicted unadapted")
    new = labelled(columns, given)
    if interval is not None:
        new["lower"], new["upper"] = around(new["prediction"], known, run.residuals, interval)
    return Predicted(new, remarks)


def predict_file(
    run: TableRun,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    adapt_on: Source | None = None,
    interval: float | None = None,
    progress: bool = False,
) -> list[str]:
    """The rows and columns of a table with predictions beside them, in a file; gives remarks."""
    check_output(data, out, new_columns(run, interval))
    made = predict_table(run, data, adapt_on=adapt_on, interval=interval, progress=progress)
    extend_table(data, made.columns, out, text=[run.about["task"], *run.columns.text])
    return made.remarks


def new_columns(run: TableRun, interval: float | None) -> list[str]:
    """The names of the columns that predictions add."""
    classes = [f"probability_{name}" for name in run.columns.target.classes]
    return ["prediction", *classes, *([] if interval is None else ["lower", "upper"])]


def adapt_table(
    run: TableRun, data: Source, out: str | os.PathLike[str] | None = None, progress: bool = False
) -> TableRun:
    """Personal models of a table's tasks in a folder of their own, one file each; or in memory."""
    out = None if out is None else free_place(out)
    later = rows_of(run, data)
    groups = later.groups
    before = [
        run.known.rows[run.known.place[id_]] if id_ in run.known.place else 0 for id_ in groups.ids
    ]
    rows = (np.array(before, int) + groups.sizes).tolist()
    blocks = (own for own, _ in adapted(run, groups.ids, later, progress))
    if out is None:
        return run._replace(folder=None, known=kept(groups.ids, rows, joined(blocks)))
    with building(out) as folder:
        write_model(
            folder, run.about, run.columns, run.models, run.rivals, run.residuals, run.evaluation
        )
        write_each_task(folder, groups.ids, rows, blocks)
    return load_table_run(out, run.about["model"])


def _check_interval(run: TableRun, interval: float) -> None:
    target = run.columns.target
    if target.classes:
        raise ConfigError(
            f"an interval is one of numbers, and the target {target.name} is a class; the "
            "predictions have probabilities"
        )
    bounds(run.residuals, interval)


def adapted(
    run: TableRun, tasks: Sequence[str], later: Rows | None, progress: bool
) -> Iterator[tuple[PersonalParams, np.ndarray]]:
    """What is personal to the tasks, after the later rows that there are, and by how many rows."""
    model, known = run.model, run.known
    nothing = model.personal(np.zeros((0, model.shape.features)), np.zeros(0), [np.arange(0)])
    further = {} if later is None else {id_: i for i, id_ in enumerate(later.groups.ids)}
    with bar("tasks", len(tasks), shown=progress) as advance:
        for first in range(0, len(tasks), BLOCK):
            ids = tasks[first : first + BLOCK]
            rows = np.zeros(len(ids), int)
            own = jax.tree.map(lambda leaf, n=rows.size: np.repeat(leaf, n, axis=0), nothing)
            place = np.array([known.place.get(id_, -1) for id_ in ids])
            old = np.flatnonzero(place >= 0)
            if len(old):
                _put(own, old, known.take(place[old]))
                rows[old] = known.rows[place[old]]
            more = np.array([further.get(id_, -1) for id_ in ids])
            new = np.flatnonzero(more >= 0)
            if later is not None and len(new):
                lists = [later.groups.rows(i) for i in more[new].tolist()]
                mine = jax.tree.map(lambda leaf, new=new: leaf[new], own)
                _put(own, new, extended(model, mine, rows[new], later.x, later.y, lists))
                rows[new] += [len(mine) for mine in lists]
            yield own, rows
            advance(first + len(ids))


def _put(own: PersonalParams, at: np.ndarray, some: PersonalParams) -> None:
    def set_(leaf: np.ndarray, new: Any) -> None:
        leaf[at] = new

    jax.tree.map(set_, own, some)


def _answers(
    run: TableRun, groups: Groups, x: np.ndarray, later: Rows | None, progress: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Every row's prediction as the model gives it, and how many rows of its task are known."""
    out = run.model.shape.classes
    given = np.empty((len(x), *([] if out is None else [out])))
    known = np.empty(len(x), int)
    first = 0
    for own, rows in adapted(run, groups.ids, later, progress):
        tasks = slice(first, first + len(rows))
        mine = groups.order[groups.start[first] : groups.start[first + len(rows)]]
        which = np.repeat(np.arange(len(rows)), groups.sizes[tasks])
        given[mine], known[mine] = run.model.answers(own, which, x[mine]), rows[which]
        first += len(rows)
    nobody = np.flatnonzero(known == 0)
    if len(nobody) and run.about["cold"] != "personal":
        given[nobody] = unadapted(run.models[run.about["cold"]], x[nobody])
    return given, known


def labelled(columns: Columns, given: np.ndarray) -> dict[str, np.ndarray]:
    """Predictions in the target's own unit, or its classes with their probabilities."""
    target = columns.target
    if not target.classes:
        return {"prediction": target.unscale(given)}
    words: Any = np.array(target.classes)
    if target.kind == "flag":
        words = words == "true"
    elif target.kind == "number":
        numbers = words.astype(float)
        words = numbers.astype(int) if (numbers % 1 == 0).all() else numbers
    named = {f"probability_{name}": given[:, i] for i, name in enumerate(target.classes)}
    return {"prediction": words[given.argmax(axis=1)], **named}
