"""From a user's own table to a run: columns learned, members trained, scores, personal models."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from moml.algorithms.tabular.members import PersonalParams
from moml.config.user_function import load_build
from moml.data.table.columns import Columns, learn_columns
from moml.data.table.frame import Table
from moml.data.table.groups import group, split, weights
from moml.errors import ConfigError, DataError, check_count
from moml.models.user import Build, as_model, check_model
from moml.tabular.fit import fit_groups
from moml.tabular.model import TableModel
from moml.tabular.read import load_table_run
from moml.tabular.score import cold_start, rivals_of, score_tasks
from moml.tabular.source import Source, read
from moml.tabular.store import (
    BLOCK,
    TableRun,
    building,
    free_place,
    joined,
    kept,
    write_model,
    write_tasks,
)
from moml.tabular.summary import describe
from moml.training.progress import bar

SHOTS = 10  # at most, where nothing is said
FEW = 5_000  # tasks; with more of them a fifth teaches little that the others do not
MISSING = ("impute", "refuse")


def train_table(
    data: Source,
    out: str | os.PathLike[str] | None = None,
    *,
    task: str,
    target: str,
    order: str | None = None,
    weight: str | None = None,
    inputs: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    classification: bool = False,
    missing: str = "impute",
    shots: int | None = None,
    hold_out: float = 0.2,
    members: int = 3,
    iterations: int | None = None,
    kinds: Sequence[str] | None = None,
    seed: int = 0,
    refit: bool = True,
    model: str | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> TableRun:
    """Learn from a table's tasks, score on held-out ones, and leave a run in the folder `out`.

    Without `out` the run is in memory alone, and `save_table_run` writes it when asked to.

    `task` is the column that says whose row it is, `order` one by which a task's earlier rows are
    known before its later ones. A new task will bring `shots` rows. With `refit` the model that is
    kept is trained once more, on all tasks, where there are few; the scores are those of the first
    one. `kinds` are the kinds of members to try, by default all that suit the target. `model`,
    module:function, is a network of your own. `say` is given lines that tell what was understood
    of the table.
    """
    out = None if out is None else free_place(out)
    check_count("members", members)
    check_count("seed", seed, least=0)
    for name, count in (("shots", shots), ("iterations", iterations)):
        if count is not None:
            check_count(name, count)
    _check_names(task, target, order, weight)
    build = None if model is None else load_build(model)
    apart = [name for name in (task, target, order, weight) if name]
    table = read(data, None if inputs is None else list(dict.fromkeys([*apart, *inputs])), [task])
    for name in set(exclude) - set(table.left_out):
        table.column(name)  # a misspelt one is refused
    groups = group(table, task, order)
    parts = split(groups, hold_out, seed)
    columns = learn_columns(
        table,
        target,
        inputs=inputs,
        exclude=[name for name in (task, weight, *exclude) if name],
        rows=groups.among(parts.train),
        classification=classification,
    )
    check_missing(table, columns, missing)
    if shots is None:
        shots = max(1, min(SHOTS, int(np.median(groups.sizes)) // 2))
    x, y = columns.encode(table), columns.target(table)
    weigh = None if weight is None else weights(table, weight)
    if build is not None:
        outputs = len(columns.target.classes) or 1
        check_model(as_model(build, x.shape[1], outputs), x.shape[1], outputs)
    for line in describe(columns, table, groups):
        say(line)
    learn, held = f"{len(parts.train):,} tasks to learn from", f"{len(parts.held):,} held out"
    say(f"{learn}, {held} to score on; a new task brings {shots} row{'s' if shots > 1 else ''}")
    del table
    every = groups.lists()
    seen, new = [every[i] for i in parts.train], [every[i] for i in parts.held]

    def fit(
        some: Sequence[Any], kinds: Sequence[str] | None = None, build: Build | None = None
    ) -> TableModel:
        return fit_groups(
            x, y, some, shots=shots, ordered=order is not None, weights=weigh,
            classes=len(columns.target.classes) or None, members=members, iterations=iterations,
            kinds=kinds, build=build, seed=seed, progress=progress,
        )  # fmt: skip

    personal, pooled = fit(seen, kinds, build), fit(seen, ["pooled"])
    models = {"personal": personal, "pooled": pooled}
    cold = cold_start(models, x, y, [seen[i] for i in personal.held_out])
    rivals = rivals_of(personal, x, y, seen, seed)
    scored = score_tasks(
        models, cold, rivals, columns.target, x, y, new,
        weights=weigh, seed=seed, progress=progress,
    )  # fmt: skip
    trained = list(parts.train)
    if refit and len(every) <= FEW:
        say(f"training again, on all {len(every):,} tasks")
        models["personal"], trained = fit(every, kinds, build), list(range(len(every)))
    about = {
        "task": task, "target": target, "order": order, "weight": weight, "shots": shots,
        "seed": seed, "held_out": [groups.ids[i] for i in parts.held],
        "trained": [groups.ids[i] for i in trained], "model": model, "cold": cold,
        "settings": {
            "hold_out": hold_out, "members": members, "iterations": iterations, "refit": refit,
            "missing": missing, "classification": classification,
            "inputs": None if inputs is None else list(inputs), "exclude": list(exclude),
        },
    }  # fmt: skip
    blocks = _personal(models["personal"], x, y, every, progress)
    if out is None:
        known = kept(groups.ids, groups.sizes, joined(blocks))
        return TableRun(None, about, columns, models, rivals, known, scored.residuals, scored.rows)
    with building(out) as folder:
        write_model(folder, about, columns, models, rivals, scored.residuals, scored.rows)
        write_tasks(folder, groups.ids, groups.sizes.tolist(), blocks)
    return load_table_run(out, model)


def _personal(
    model: TableModel, x: Any, y: Any, groups: Sequence[Any], progress: bool
) -> Iterator[PersonalParams]:
    """What is personal to every task, a block of them at a time."""
    with bar("personal", len(groups), shown=progress) as advance:
        for first in range(0, len(groups), BLOCK):
            yield model.personal(x, y, groups[first : first + BLOCK])
            advance(min(first + BLOCK, len(groups)))


def _check_names(task: str, target: str, order: str | None, weight: str | None) -> None:
    for names in ((task, target), (task, weight), (target, weight), (target, order), (task, order)):
        if names[0] == names[1]:
            raise ConfigError(f"column {names[0]} cannot be two of task, target, order and weight")


def check_missing(table: Table, columns: Columns, missing: str) -> None:
    """Where missing inputs are refused, name the first of them, if there is one."""
    if missing not in MISSING:
        raise ConfigError(f"missing must be one of {', '.join(MISSING)}; given {missing!r}")
    for name in columns.names if missing == "refuse" else ():
        lacking = table.column(name).missing
        if lacking.any():
            more = int(lacking.sum()) - 1
            others = f", nor have {more:,} others" if more else ""
            place = table.where(int(np.argmax(lacking)), name)
            raise DataError(f"{place} has no value{others}; missing values are refused here")
