"""`train_table`: from a user's table to a run."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from moml.algorithms.tabular.members import Shape, candidates
from moml.config.user_function import load_build
from moml.data.table.cells import cells
from moml.data.table.columns import check_missing, learn_columns
from moml.data.table.doubts import doubts
from moml.data.table.frame import as_categories
from moml.data.table.groups import group, split, weights
from moml.data.table.levels import cross_fitted, with_levels
from moml.errors import MomlWarning
from moml.models.user import as_model, check_model
from moml.runs.consistency import assert_equal
from moml.runtime.mesh import mesh
from moml.runtime.process_group import ALONE, ProcessGroup
from moml.tabular.fitting.boosted import boosted
from moml.tabular.fitting.crossfit import FEW, WIDEST, fit_crossed
from moml.tabular.fitting.fit import fit_models
from moml.tabular.model import TableModel
from moml.tabular.options import check_not_held_out, check_options
from moml.tabular.rows import RowLists, Rows, Source, read
from moml.tabular.run import TableRun
from moml.tabular.score import cold_start, fit_rivals, score_tasks
from moml.tabular.store import BLOCK, Block, free_place, in_memory
from moml.tabular.summary import (
    describe,
    importance,
    interval_coverage,
    logs_place,
    open_logs,
    scores_row,
)
from moml.training.evaluate import levels
from moml.training.progress import bar

SHOTS = 10  # the largest default
REFIT = 5_000  # tasks; a larger table is not trained a second time
HOLD_OUT = 0.2


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
    categorical: Sequence[str] = (),
    classification: bool = False,
    decimal: str | None = None,
    thousands: str | None = None,
    units: Sequence[str] = (),
    na: Sequence[str] = (),
    missing: str = "impute",
    shots: int | None = None,
    hold_out: float | None = None,
    refit: bool = True,
    members: int = 3,
    iterations: int | None = None,
    kinds: Sequence[str] | None = None,
    seed: int = 0,
    model: str | None = None,
    devices: int | None = None,
    process_group: ProcessGroup = ALONE,
    log: Sequence[str] = (),
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> TableRun:
    """Train on a table with few rows each of many users, machines or shops: the tasks.

    Parameters
    ----------
    data
        Parquet, CSV or Arrow file, or a folder of such files with the same columns; in Python also
        a dictionary of columns or a data frame.
    out
        Folder of the run; it must not exist. In Python None keeps the run in memory.
    task
        Column that says which task a row belongs to.
    target
        Column to predict: a number, or a class.
    order
        Column of numbers or dates: a task's earlier rows are known before its later ones.
    weight
        Column with the rows' weights.
    inputs
        Columns to predict from; by default all others.
    exclude
        Columns to leave out.
    categorical
        Columns of categories, whatever they look like, such as codes written as numbers.
    classification
        Treat a target of numbers as classes.
    decimal
        Decimal mark of numbers in texts: "." or ",".
    thousands
        Mark between groups of three digits, such as ",".
    units
        Signs before or after numbers, such as $ or %, that are not part of them.
    na
        Texts, or numbers, that stand for a missing value, besides NA, null and the like.
    missing
        Missing inputs: "impute" the training mean beside an indicator, or "refuse" them.
    shots
        Rows that a new task will have; by default half of the median task, at most 10.
    hold_out
        Share of the tasks to score on, by a model that has not learned from them; by default 0.2.
        Of a cross-fitted table all tasks are scored, and this is refused.
    refit
        Then train once more on all tasks, if they are at most 5,000, and keep that model. The model
        of a cross-fitted table has always learned from all.
    members
        Networks of each kind that are averaged.
    iterations
        Training steps; by default chosen by the number of tasks.
    kinds
        Kinds of networks to train: summary, head (for numbers), steps. By default two of them; a
        table with fewer than 2,000 tasks is then cross-fitted, with mixed models and trees too.
    seed
        Seed of everything random.
    model
        Your own network, MODULE:FUNCTION; it is called with the numbers of inputs and outputs.
    devices
        Devices of each process that members are spread over; by default one, with several
        processes all that they have.
    process_group
        The processes that train together, see `moml.runtime.process_group.join`; the first writes.
    log
        Services that get losses and scores, of tensorboard, wandb, mlflow (extras of these names).
    progress
        Show progress.
    say
        Called with lines that describe how the table was understood.

    Returns
    -------
    A `TableRun`, with `evaluation` and the methods `predict`, `adapt`, `evaluate` and `save`.

    >>> rng = np.random.default_rng(0)
    >>> shop, price = np.repeat(np.arange(20), 6), rng.normal(size=120)
    >>> table = {"shop": shop, "price": price, "sold": rng.normal(size=20)[shop] - price}
    >>> few = {"iterations": 20, "members": 1, "kinds": ["summary"], "refit": False}
    >>> run = train_table(table, task="shop", target="sold", **few)
    >>> run.predict({"shop": [3, 99], "price": [0.5, 0.5]}).columns["prediction"].shape
    (2,)
    """
    out = None if out is None else free_place(out)
    logs = logs_place(out, log)
    roles = {"task": task, "target": target, "order": order, "weight": weight}
    counts = {"members": members, "shots": shots, "iterations": iterations, "devices": devices}
    lists = {"inputs": inputs, "exclude": exclude, "categorical": categorical, "kinds": kinds}
    check_options(columns=roles, lists=lists, counts=counts, seed=seed)
    grid = mesh(devices) if process_group.processes > 1 or (devices or 1) > 1 else None
    say = say if process_group.leads else lambda line: None
    build = None if model is None else load_build(model)
    wanted = (
        None if inputs is None else list(dict.fromkeys([*filter(None, roles.values()), *inputs]))
    )
    form = cells(decimal, thousands, units, na)
    table = as_categories(read(data, wanted, [task, *categorical], form), categorical)
    table.named(exclude)  # raises for a misspelt name
    groups = group(table, task, order)
    share = HOLD_OUT if hold_out is None else hold_out
    parts = split(groups, share, seed)
    columns = learn_columns(
        table,
        target,
        inputs=inputs,
        exclude=[name for name in (task, weight, *exclude) if name],
        rows=groups.among(parts.train),
        classification=classification,
    )
    check_missing(table, columns, missing)
    seen_rows = groups.among(parts.train)
    columns = with_levels(columns, table, groups, seen_rows)
    if shots is None:
        shots = max(1, min(SHOTS, int(np.median(groups.sizes)) // 2))
    x, y = columns.encode(table), columns.target(table)
    x = cross_fitted(columns, table, groups, seen_rows, x)
    given = Rows(groups, x, y, None if weight is None else weights(table, weight), [])
    classes = len(columns.target.classes) or None
    if build is not None:
        check_model(as_model(build, x.shape[1], classes or 1), x.shape[1], classes or 1)
    few = kinds is None and build is None and len(groups.ids) < FEW
    crossed = few and x.shape[1] <= WIDEST
    if crossed:
        check_not_held_out(hold_out, refit, FEW, candidates(Shape(x.shape[1], classes)))
    for line in describe(columns, table, groups, categorical):
        say(line)
    for line in doubts(table, columns, groups) if process_group.leads else ():
        warnings.warn(line, MomlWarning, stacklevel=2)
    brings = f"a new task brings {shots} row{'s' if shots > 1 else ''}"
    if crossed:
        say(f"each of {len(groups.ids)} tasks is scored by members that did not see it; {brings}")
    else:
        if few:
            say(f"not cross-fitted: {x.shape[1]:,} encoded inputs are more than {WIDEST}")
        learn = f"{len(parts.train):,} tasks to learn from"
        say(f"{learn}, {len(parts.held):,} held out to score on; {brings}")
    del table
    every = groups.lists()
    seen = [every[i] for i in parts.train]

    fit = partial(
        fit_models, x, y, shots=shots, ordered=order is not None, classes=classes,
        weights=given.weights, kinds={"personal": kinds, "pooled": ["pooled"]}, build=build,
        members=members, iterations=iterations, seed=seed, progress=progress, space_for=every,
        mesh=grid,
    )  # fmt: skip
    settings = {
        "hold_out": None if crossed else share, "members": members, "iterations": iterations,
        "refit": refit, "kinds": None if kinds is None else list(kinds), "missing": missing,
        "classification": classification,
        "inputs": None if inputs is None else list(inputs), "exclude": list(exclude),
        "categorical": list(categorical), "cells": form._asdict(),
    }  # fmt: skip
    named = {**roles, "shots": shots, "seed": seed, "model": model}
    facts = {"rows": len(x), "tasks": len(every), "features": x.shape[1], "targets": y.sum()}
    assert_equal(process_group, "command", {**named, **settings})
    assert_equal(process_group, "table", facts)
    if grid is not None:
        each = "" if process_group.processes == 1 else f" of {process_group.processes} processes"
        say(f"members on {grid.size} devices{each}")
    with (
        process_group.watch(),
        open_logs(log if process_group.leads else (), logs, named | settings) as phase,
    ):
        if crossed:
            models, cold, rivals, scored, apart = fit_crossed(
                given, columns.target, shots=shots, ordered=order is not None, members=members,
                iterations=iterations, seed=seed, progress=progress, mesh=grid, log=phase("folds"),
            )  # fmt: skip
            held, trained = [], list(range(len(every)))
        else:
            models = fit(seen, log=phase("held_out"))
            personal = models["personal"]
            cold = cold_start(models, x, y, [seen[i] for i in personal.held_out])
            rivals = fit_rivals(personal, x, y, seen, seed)
            held, trained = parts.held.tolist(), list(parts.train)
            apart = [(personal, parts.held if held else np.arange(len(every)))]
            trees = boosted(
                x, y, seen, [np.array(personal.held_out)], known=levels(shots), classes=classes,
                ordered=order is not None, weights=given.weights, seed=seed,
            )  # fmt: skip
            scored = score_tasks(
                models, cold, rivals, columns.target, given, held, seed=seed, progress=progress,
                more=trees,
            )  # fmt: skip
        phase("scores")(scores_row(scored.rows))
        held_shares = interval_coverage(scored.residuals, say)
        ranks = importance(columns, apart, given, seed)
        if refit and not crossed and len(every) <= REFIT:
            say(f"training again, on all {len(every):,} tasks")
            again = fit(every, only=["personal"], at=models["personal"].knots, log=phase("refit"))
            models, trained = {**models, **again}, list(range(len(every)))
    about = named | {
        "held_out": [groups.ids[i] for i in held],
        "trained": [groups.ids[i] for i in trained], "cold": cold, "settings": settings,
        "importance": ranks, "coverage": held_shares,
    }  # fmt: skip
    nobody = in_memory([], [(models["personal"].start(), np.zeros(0, int))])
    run = TableRun(about, columns, models, rivals, nobody, scored.residuals, scored.rows)
    blocks = _personal(models["personal"], x, y, every, progress)
    write = partial(run.with_tasks, groups.ids, blocks, out if process_group.leads else None)
    return process_group.run_all("write", write)


def _personal(
    model: TableModel, x: np.ndarray, y: np.ndarray, groups: RowLists, progress: bool
) -> Iterator[Block]:
    """Personal parameters of all tasks, a block of tasks at a time."""
    with bar("personal", len(groups), shown=progress) as advance:
        for first in range(0, len(groups), BLOCK):
            some = groups[first : first + BLOCK]
            yield model.personal(x, y, some), np.array([len(rows) for rows in some])
            advance(first + len(some))
