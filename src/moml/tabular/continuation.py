"""`moml train --from RUN --data TABLE`: a trained table goes on with new tasks and rows.

Columns and their encoding stay. Members start from where they are, and the best of their way on
held-out tasks is taken, the start included. A known task keeps its summary, and its head by how far
it was from the common one; new rows come on top, as `moml.algorithms.tabular.update` has it.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from moml.algorithms.tabular.members import PersonalParams, parts
from moml.data.table.groups import split
from moml.errors import check_count
from moml.tabular.fit import choose, held_rows, train_kind
from moml.tabular.model import TableModel, as_input, as_target
from moml.tabular.predict import adapted
from moml.tabular.program import as_given
from moml.tabular.read import load_table_run
from moml.tabular.score import RESIDUALS, cold_start, score_tasks
from moml.tabular.source import Rows, Source, rows_of
from moml.tabular.store import Known, TableRun, building, free_place, write_model, write_tasks

LEAST = 20  # tasks; fewer do not move the common parameters


def go_on_table(
    source: str | os.PathLike[str],
    data: Source,
    out: str | os.PathLike[str],
    *,
    hold_out: float = 0.2,
    iterations: int | None = None,
    seed: int = 0,
    model: str | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> TableRun:
    """Go on from the run `source` with a table's rows, and leave a run of its own in `out`.

    Scores are those on new tasks that were held out, or, if there are none, those of the source.
    """
    out = free_place(out)
    check_count("seed", seed, least=0)
    if iterations is not None:
        check_count("iterations", iterations)
    run = load_table_run(source, model)
    given = rows_of(run, data, weighted=True, say=say)
    trained = set(run.about["trained"])
    ids, every = given.groups.ids, given.groups.lists()
    held = [i for i in _apart(given, hold_out, seed) if ids[i] not in trained]
    seen = sorted(set(range(len(ids))) - set(held))
    new = sum(id_ not in run.known.place for id_ in ids)
    say(f"{len(given.x):,} rows of {len(ids):,} tasks, {new:,} of them new")
    models, cold = dict(run.models), run.about["cold"]
    able = sum(len(every[i]) > 1 for i in seen)
    if able < LEAST:
        say(f"{able} tasks of 2 rows and more: the common parameters stay as they are")
        held, seen = [], []
    else:
        say(f"{len(seen):,} tasks to learn from, {len(held):,} held out to score on")
        some = [every[i] for i in seen]
        on = lambda model: go_on_groups(
            model, given, some, iterations=iterations, seed=seed, progress=progress
        )
        models = {name: on(model) for name, model in models.items()}
        apart = [some[i] for i in models["personal"].held_out]
        cold = cold_start(models, given.x, given.y, apart)
    evaluation, residuals = run.evaluation, run.residuals
    if held:
        scored = score_tasks(
            models, cold, run.rivals, run.columns.target, given.x, given.y,
            [every[i] for i in held], weights=given.weights, seed=seed, progress=progress,
        )  # fmt: skip
        evaluation = scored.rows
        residuals = {k: _joined(r, scored.residuals.get(k), seed) for k, r in residuals.items()}
    else:
        say("no new task is held out: scores and intervals are those of the run before")
    learned = [*run.about["trained"], *(ids[i] for i in seen if ids[i] not in trained)]
    before = [id_ for id_ in run.about["held_out"] if id_ not in set(learned)]
    further = [ids[i] for i in held if ids[i] not in set(before)]
    about = run.about | {"trained": learned, "held_out": before + further, "cold": cold}
    del about["versions"]
    later = run._replace(models=models, known=_carried(run, models["personal"]))
    tasks = [*run.known.place, *(id_ for id_ in ids if id_ not in run.known.place)]
    more = dict(zip(ids, given.groups.sizes.tolist(), strict=True))
    rows = [*run.known.rows.tolist(), *([0] * (len(tasks) - len(run.known.rows)))]
    with building(out) as folder:
        write_model(folder, about, run.columns, models, run.rivals, residuals, evaluation)
        blocks = (own for own, _ in adapted(later, tasks, given, progress))
        counts = [n + more.get(id_, 0) for id_, n in zip(tasks, rows, strict=True)]
        write_tasks(folder, tasks, counts, blocks)
    return load_table_run(out, model)


def go_on_groups(
    model: TableModel,
    given: Rows,
    groups: Sequence[Any],
    *,
    iterations: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> TableModel:
    """The same members after training on these groups, each the best of its way on some of them."""
    shape, shots = model.shape, model.shots
    x, y = as_input(given.x), as_target(shape, given.y)
    held = choose(groups, seed)
    seen = [rows for i, rows in enumerate(groups) if i not in set(held)]
    test = held_rows(x, y, [groups[i] for i in held], shots, shape.ordered, seed)
    rows = as_given(model.knots, x, y, seen, given.weights, seed)
    steps = max(500, math.ceil(len(seen) / 40)) if iterations is None else iterations

    def on(kind: str, metas: Any) -> Any:
        [(_, found, _)] = train_kind(
            kind, shape, rows, test, shots, members=len(jax.tree.leaves(metas)[0]),
            iterations=steps, progress=progress, models=metas,
        )  # fmt: skip
        return found

    metas = {kind: on(kind, some) for kind, some in model.metas.items()}
    return replace(model, metas=metas, held_out=held)


def _apart(given: Rows, hold_out: float, seed: int) -> list[int]:
    """The tasks that may be held out, where there are enough to learn from."""
    if (given.groups.sizes > 1).sum() < LEAST:
        return []
    return split(given.groups, hold_out, seed).held.tolist()


def _carried(run: TableRun, model: TableModel) -> Known:
    """What is known of tasks, as far from the new common parameters as it was from the old ones."""

    def start(model: TableModel, kind: str) -> Any:
        inner = parts(kind, model.shape, model.knots).inner
        return jax.vmap(inner.start)(model.metas[kind])

    def take(which: np.ndarray) -> PersonalParams:
        own = run.known.take(which)
        move = lambda p, new, old: p + np.asarray(new - old)[None]
        heads = {
            kind: jax.tree.map(move, p, start(model, kind), start(run.model, kind))
            for kind, p in own.heads.items()
        }
        return PersonalParams(own.summary, heads)

    return run.known._replace(take=take)


def _joined(old: np.ndarray, new: np.ndarray | None, seed: int) -> np.ndarray:
    """Residuals of the held-out tasks before and of those now, at most so many."""
    both = old if new is None else np.concatenate([old, new])
    chance = np.random.default_rng([seed, 6])
    return both if len(both) <= RESIDUALS else chance.choice(both, RESIDUALS, replace=False)
