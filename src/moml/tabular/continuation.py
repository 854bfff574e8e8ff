"""`moml train --from RUN --data TABLE`: continue a table's run with new tasks and rows.

Columns and their encoding stay. Members continue from their parameters; each keeps its best model
on held-out tasks, the start included. Mixed models, trees and the weights of all kinds stay as they
are. A known task keeps its summary, and its head keeps its distance from the common one; new rows
update both, see `moml.algorithms.tabular.update`.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import numpy as np

from moml.algorithms.tabular.members import PersonalParams, parts
from moml.data.table.groups import split
from moml.errors import check_count
from moml.tabular.fitting.fit import choose, held_rows, round_up
from moml.tabular.fitting.program import VISIT, table_data
from moml.tabular.fitting.training import train_members
from moml.tabular.model import TableModel
from moml.tabular.predict import adapted, remarks_on
from moml.tabular.rows import RowLists, Rows, Source, as_input, as_target, power
from moml.tabular.run import TableRun, load_table_run
from moml.tabular.score import cold_start, score_tasks, some_residuals
from moml.tabular.store import TaskStore, free_place
from moml.tabular.summary import interval_coverage, logs_place, open_logs
from moml.types import Personal, Record

LEAST = 20  # tasks of 2 rows or more; with fewer the common parameters are not trained


def continue_table(
    source: str | os.PathLike[str],
    data: Source,
    out: str | os.PathLike[str],
    *,
    hold_out: float = 0.2,
    iterations: int | None = None,
    seed: int = 0,
    model: str | None = None,
    log: Sequence[str] = (),
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> TableRun:
    """Continue a table's run with new tasks and rows; columns and settings are the run's.

    The scores are those on new tasks that were held out or, if there are none, those of the source.

    Parameters
    ----------
    source
        Folder of the run; it does not change.
    data
        Table with rows of new tasks, or later rows of known ones.
    out
        Folder of the new run; it must not exist.
    hold_out
        Share of the tasks, among the new ones, to score on.
    iterations
        Training steps; by default a quarter of what a new training takes.
    seed
        Seed of everything random.
    model
        MODULE:FUNCTION, if the run has a network of your own.
    log
        Services that get the losses, of tensorboard, wandb, mlflow (extras of these names).
    progress
        Show progress.
    say
        Called with lines that describe what is done.

    Returns
    -------
    The new run.
    """
    place = free_place(out)
    logs = logs_place(place, log)
    check_count("seed", seed, least=0)
    if iterations is not None:
        check_count("iterations", iterations)
    run = load_table_run(source, model)
    given = run.rows(data, weighted=True)
    store, trained = run.tasks, set(run.about["trained"])
    for line in remarks_on(given, store):
        say(line)
    ids, every = given.groups.ids, given.groups.lists()
    new = [id_ for id_ in ids if id_ not in store.places]
    say(f"{len(given.x):,} rows of {len(ids):,} tasks, {len(new):,} of them new")
    held, models, cold = [], run.models, run.about["cold"]
    if (given.groups.sizes > 1).sum() >= LEAST:
        apart = split(given.groups, hold_out, seed).held.tolist()
        held = [i for i in apart if ids[i] not in trained]
    seen = sorted(set(range(len(ids))) - set(held))
    able = sum(len(every[i]) > 1 for i in seen)
    if able < LEAST:
        say(f"{able} tasks of 2 rows or more: the common parameters stay as they are")
        held, seen = [], []
    else:
        say(f"{len(seen):,} tasks to learn from, {len(held):,} held out to score on")
        some = [every[i] for i in seen]
        with open_logs(log, logs, {"source": str(source), "seed": seed}) as phase:
            models = {
                name: _trained(model, given, some, iterations, seed, progress, phase("held_out"))
                for name, model in run.models.items()
            }
        stop = [some[i] for i in models["personal"].held_out]
        cold = cold_start(models, given.x, given.y, stop)
    evaluation, residuals = run.evaluation, run.residuals
    if held:
        scored = score_tasks(
            models, cold, run.rivals, run.columns.target, given, held, seed=seed, progress=progress
        )
        evaluation = scored.rows
        residuals = {k: _joined(r, scored.residuals.get(k), seed) for k, r in residuals.items()}
    else:
        say("no new task is held out: scores and intervals are those of the run before")
    learned = dict.fromkeys([*run.about["trained"], *(ids[i] for i in seen)])
    scored_on = dict.fromkeys([*run.about["held_out"], *(ids[i] for i in held)])
    held_out = [id_ for id_ in scored_on if id_ not in learned]
    about = run.about | {"trained": [*learned], "held_out": held_out, "cold": cold}
    if held:
        about["coverage"] = interval_coverage(residuals, say)
    about["continued"] = {"hold_out": hold_out, "iterations": iterations, "seed": seed,
                          "scored": bool(held), "trained": bool(seen)}  # fmt: skip
    later = replace(
        run, about=about, models=models, residuals=residuals, evaluation=evaluation,
        tasks=_moved(store, run.model, models["personal"]),
    )  # fmt: skip
    tasks = [*store.places, *new]
    blocks = adapted(later.model, later.tasks, tasks, given, progress)
    return later.with_tasks(tasks, blocks, place)


def _trained(
    model: TableModel,
    given: Rows,
    groups: RowLists,
    iterations: int | None,
    seed: int,
    progress: bool,
    log: Callable[[Record], None],
) -> TableModel:
    """The same members after training on these groups, some of which are held out to stop by."""
    shape, shots = model.shape, model.shots
    x, y = as_input(given.x), as_target(shape, given.y)
    held = choose(groups, seed)
    apart = set(held)
    seen = [rows for i, rows in enumerate(groups) if i not in apart]
    widest = round_up(max(len(rows) for rows in groups))
    some = [groups[i] for i in held]
    test = held_rows(x, y, some, shots, shape.ordered, seed, widest, len(held))
    most = len(seen) if shots > VISIT else power(len(seen))
    rows = table_data(model.knots, x, y, seen, given.weights, seed, most)
    found = train_members(
        [*model.metas], shape, rows, test, shots, widest=widest, members=1,
        iterations=max(500, math.ceil(len(seen) / 40)) if iterations is None else iterations,
        progress=progress, models=model.metas, log=log,
    )  # fmt: skip
    metas = {kind: meta for kind, [(_, meta, _)] in found.items()}
    return replace(model, metas=metas, held_out=held)


def _moved(store: TaskStore, old: TableModel, new: TableModel) -> TaskStore:
    """The same tasks; heads are as far from the new common parameters as from the old ones."""

    def start(model: TableModel, kind: str) -> Personal:
        inner = parts(kind, model.shape, model.knots).inner
        return jax.vmap(inner.start)(model.metas[kind])

    def take(places: np.ndarray) -> PersonalParams:
        personal = store.take(places)
        move = lambda p, new, old: p + np.asarray(new - old)[None]
        heads = {
            kind: jax.tree.map(move, personal.heads[kind], start(new, kind), start(old, kind))
            for kind in old.metas
        }
        return PersonalParams(personal.summary, personal.heads | heads)

    return store._replace(take=take)


def _joined(old: np.ndarray, new: np.ndarray | None, seed: int) -> np.ndarray:
    """Residuals of earlier and new held-out tasks, which get further numbers."""
    if new is None:
        return old
    later = new + np.array([0, 1 + old[:, 1].max(), 0])
    return some_residuals(np.concatenate([old, later]), [seed, 6])
