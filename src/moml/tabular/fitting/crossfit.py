"""Tables with few tasks: networks and simple members, weighed by cross-fitted predictions.

The tasks are dealt to folds. Members of a fold learn from the tasks of the others, so that every
task is predicted by members that have not seen it. These predictions decide when networks stop, how
many trees there are, what each kind weighs, and are what is scored. The final model has the
networks and trees of all folds, and mixed models of all tasks.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from moml.algorithms.tabular.members import Shape, candidates
from moml.algorithms.tabular.rivals import Rivals, learn_rivals, row_losses
from moml.algorithms.tabular.simple_fit import fit_logistics, fit_simple
from moml.algorithms.tabular.stack import Stack, averaged, stacked, stacked_chances
from moml.data.table.target import Target
from moml.errors import DataError
from moml.models.table import Knots, knots
from moml.tabular.fitting.boosted import Boosted, boosted
from moml.tabular.fitting.fit import held_rows, round_up
from moml.tabular.fitting.program import table_data
from moml.tabular.fitting.training import Candidate, HeldOut, task_losses, train_members
from moml.tabular.model import TableModel
from moml.tabular.rows import RowLists, Rows, SupportQuery, as_input, as_target, power, split_rows
from moml.tabular.score import Scored, score_rows, some_residuals
from moml.training.evaluate import levels
from moml.types import Meta, Record

FEW, WIDEST = 2_000, 300  # tasks; a table with fewer is cross-fitted, unless it has more inputs
ASKED, EACH = 50_000, 64  # rows that are predicted in all, but of every task at least so many


class Crossed(NamedTuple):
    """The models of a table, and the scores of their parts on tasks that these have not seen."""

    models: dict[str, TableModel]
    cold: str
    rivals: Rivals
    scored: Scored
    apart: list[tuple[TableModel, np.ndarray]]  # of each fold: its model, and tasks new to it


class Fold(NamedTuple):
    """What predicts the tasks of a fold, without having seen them."""

    tasks: np.ndarray
    nets: TableModel  # networks and simple members, not yet weighed
    pooled: TableModel
    rivals: Sequence[Rivals | Boosted]


def fit_crossed(
    given: Rows,
    target: Target,
    *,
    shots: int,
    ordered: bool,
    members: int,
    iterations: int | None,
    seed: int,
    progress: bool,
    mesh: Mesh | None = None,
    log: Callable[[Record], None] = lambda row: None,
) -> Crossed:
    """Fit a table with few tasks; there are two folds for each of `members`."""
    classes = len(target.classes) or None
    shape = Shape(given.x.shape[1], classes, ordered)
    x, y, every = as_input(given.x), as_target(shape, given.y), given.groups.lists()
    if given.weights is not None and not given.weights.any():
        raise DataError("some rows to score on must have a positive weight; all weights are 0")
    rng = np.random.default_rng([seed, 7])
    fold = deal(given.groups.sizes, 2 * members, rng)
    most = max(EACH, ASKED // len(every))
    parts = split_rows(every, shots, ordered, np.random.default_rng([seed, 3]), most)
    at = knots(x)
    train = partial(_networks, shape, at, x, y, every, fold, given.weights, shots)
    nets, scores = train(members=members, iterations=iterations, seed=seed, progress=progress,
                         mesh=mesh, log=log)  # fmt: skip
    own = {kind: nets[kind] for kind in candidates(shape)}
    table = lambda metas, simple={}: TableModel(shape, at, metas, shots, (), scores, simple)
    rivals = []  # of each fold, then of all tasks
    for f in range(fold.max() + 2):
        support, query = ([part[i] for i in np.flatnonzero(fold != f).tolist()] for part in parts)
        rivals.append(learn_rivals(x, y, support, query, classes))
    plain, simple = fit_logistics(
        x, y, classes, every, fold, at, weights=given.weights, rng=rng
    ) if classes else fit_simple(
        x, y, every, fold, at, shift=target.scale.mean / max(target.scale.std, 1e-12),
        weights=given.weights, known=levels(shots), ordered=ordered,
        support=parts.support, query=parts.query, rivals=rivals,
        summaries=lambda some: table(own).personal(x, y, some).summary, rng=rng,
    )  # fmt: skip
    tasks_of = [np.flatnonzero(fold == f) for f in range(fold.max() + 1)]
    trees = boosted(
        x, y, every, tasks_of, known=levels(shots), ordered=ordered, classes=classes,
        weights=given.weights, seed=seed,
    )  # fmt: skip
    folds = []
    for f, tasks in enumerate(tasks_of):
        mine = lambda metas, f=f: {kind: _of_fold(meta, f, fold) for kind, meta in metas.items()}
        folds.append(
            Fold(
                np.array([i for i in tasks if len(every[i]) > 1], int),
                table(mine(own), {name: models[f] for name, models in plain.items()}),
                table(mine({"pooled": nets["pooled"]})),
                [rivals[f], *trees[f : f + 1]],
            )
        )
    kinds = (*own, *simple)
    crossed = _crossed(folds, kinds, x, y, parts, levels(shots))
    stack, scored, cold = _weighed(crossed, kinds, fold, target, given, y, seed)
    used = {kind for kind, w in zip(kinds, stack.weights.T, strict=True) if w.any()} | {"summary"}
    stays = np.array([kind in used for kind in kinds])
    model = TableModel(
        shape, at, {kind: meta for kind, meta in own.items() if kind in used}, shots, (),
        _with_weights(scores, crossed, stack, kinds, y, classes),
        {name: one for name, one in simple.items() if name in used},
        stack._replace(weights=stack.weights[:, stays]),
    )  # fmt: skip
    models = {"personal": model, "pooled": table({"pooled": nets["pooled"]})}
    apart = [(replace(one.nets, stack=stack), one.tasks) for one in folds]
    return Crossed(models, cold, rivals[-1], scored, apart)


def deal(sizes: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """The fold of each task: all folds have about as many tasks of 2 rows or more.

    >>> sorted(deal(np.full(5, 4), 2, np.random.default_rng(0)).tolist())
    [0, 0, 0, 1, 1]
    """
    order = rng.permutation(len(sizes))
    order = order[np.argsort(sizes[order] < 2, kind="stable")]
    found = np.empty(len(sizes), int)
    found[order] = np.arange(len(sizes)) % max(2, min(folds, int((sizes > 1).sum())))
    return found


def _networks(
    shape: Shape,
    at: Knots,
    x: np.ndarray,
    y: np.ndarray,
    every: RowLists,
    fold: np.ndarray,
    weights: np.ndarray | None,
    shots: int,
    *,
    members: int,
    iterations: int | None,
    seed: int,
    progress: bool,
    mesh: Mesh | None,
    log: Callable[[Record], None],
) -> tuple[dict[str, Meta], tuple[Record, ...]]:
    """Networks by kind, leaves [settings * folds, ...], and what was tried.

    Of each kind the settings are kept that cross-fitted losses cannot tell from the best one.
    """
    able = np.array([i for i, rows in enumerate(every) if len(rows) > 1])
    widest = round_up(max(len(rows) for rows in every))
    some = [every[i] for i in able]
    held = held_rows(x, y, some, shots, shape.ordered, seed, widest, len(able))
    test = HeldOut(held.batch, held.tasks, fold[able])
    folds = [np.flatnonzero(fold != f) for f in range(fold.max() + 1)]
    data = table_data(at, x, y, every, weights, seed, power(len(every)), folds)
    tried = train_members(
        [*candidates(shape), "pooled"], shape, data, test, shots, widest=widest,
        members=len(folds), iterations=iterations, progress=progress, mesh=mesh, log=log,
    )  # fmt: skip
    metas, scores = {}, []
    for kind, found in tried.items():
        metas[kind], rows = _kept(shape, found, test)
        scores += rows if kind != "pooled" else []
    return metas, tuple(scores)


def _kept(shape: Shape, tried: list[Candidate], test: HeldOut) -> tuple[Meta, list[Record]]:
    """The members of the best settings of a kind, and a row for each setting."""
    by_task = np.stack([task_losses(shape, answers, test.query) for _, _, answers in tried])
    above = by_task - by_task[np.argmin(by_task.sum(axis=1))]
    kept = above.sum(axis=1) <= 2 * np.sqrt(above.shape[1]) * above.std(axis=1)
    count = float(np.sum(test.query.mask))
    rows = [
        setting | {"loss": float(loss.sum()) / count, "kept": bool(ok), "tasks": test.tasks}
        for (setting, _, _), loss, ok in zip(tried, by_task, kept, strict=True)
    ]
    some = [meta for (_, meta, _), ok in zip(tried, kept, strict=True) if ok]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *some), rows


def _of_fold(meta: Meta, f: int, fold: np.ndarray) -> Meta:
    """The members of a fold, one for each setting."""
    return jax.tree.map(lambda leaf: leaf[f :: fold.max() + 1], meta)


class CrossFit(NamedTuple):
    """Cross-fitted answers after some known rows, for the query rows of all scored tasks."""

    which: np.ndarray  # the task of each row
    rows: np.ndarray
    answers: dict[int, dict[str, np.ndarray]]  # known rows -> candidate -> answers


def _crossed(
    folds: Sequence[Fold],
    kinds: Sequence[str],
    x: np.ndarray,
    y: np.ndarray,
    parts: SupportQuery,
    steps: Sequence[int],
) -> CrossFit:
    """The answers of each fold's members for its tasks, of the pooled model, and of baselines."""
    which, rows = [], []
    answers: dict[int, dict[str, list[np.ndarray]]] = {k: {} for k in steps}
    for tasks, nets, pooled, rivals in folds:
        if not len(tasks):
            continue
        query = [parts.query[i] for i in tasks]
        owner = np.repeat(np.arange(len(tasks)), [len(some) for some in query])
        flat = np.concatenate(query)
        which.append(tasks[owner])
        rows.append(flat)
        for k in steps:
            support = [parts.support[i][:k] for i in tasks]
            personal = nets.personal(x, y, support)
            found = dict(zip(kinds, nets.each(personal, owner, x[flat]), strict=True))
            found["pooled"] = pooled.unadapted(x[flat])
            for rival in rivals:
                found |= rival.answers(x, y, support, owner, x[flat], nets.shape.classes)
            for name, some in found.items():
                answers[k].setdefault(name, []).append(some)
    joined_ = {
        k: {name: np.concatenate(some) for name, some in each.items()}
        for k, each in answers.items()
    }
    return CrossFit(np.concatenate(which), np.concatenate(rows), joined_)


def _weighed(
    crossed: CrossFit,
    kinds: Sequence[str],
    fold: np.ndarray,
    target: Target,
    given: Rows,
    y: np.ndarray,
    seed: int,
) -> tuple[Stack, Scored, str]:
    """The weights of the candidates, and scores by weights that a task had no part in."""
    (which, at, answers), fit = crossed, stacked_chances if target.classes else stacked
    weigh = np.ones(len(at)) if given.weights is None else given.weights[at].astype(float)
    mine, classes, count = fold[which], len(target.classes) or None, np.arange(len(at))
    weights, found, residuals, cold, start = [], [], {}, "personal", y[at]
    for k, each in answers.items():
        answered = np.stack([each[kind] for kind in kinds])
        errors = answered[:, count, y[at]] if classes else answered - y[at]
        ok = lambda some, e=errors: fit(e[:, some], weigh[some], which[some])
        weights.append(ok(np.ones(len(at), bool)))
        personal, spread = np.empty(answered.shape[1:]), np.empty(len(at))
        for f in np.unique(mine):
            others, own = mine != f, mine == f
            w = ok(others) if others.any() else weights[-1]
            personal[own], spread[own] = averaged(w[None], answered[:, own])
        if not k:
            least = lambda some: np.average(row_losses(some, y[at], classes), weights=weigh)
            cold = "personal" if least(personal) <= least(each["pooled"]) else "pooled"
            if cold == "pooled":
                personal, spread = each["pooled"], 0 * spread
            start = personal
        shown = {"personal": personal} | {n: a for n, a in each.items() if n not in kinds}
        found += score_rows(target, shown, start, y[at], weigh, which, k)
        if not classes:
            off = target.unscale(y[at]) - target.unscale(personal)
            both = np.column_stack([off, which, spread * target.scale.std])
            residuals[k] = some_residuals(both, [seed, 5])
    stack = Stack(np.array([*answers]), np.stack(weights))
    return stack, Scored(found, residuals), cold


def _with_weights(
    scores: Sequence[Record], crossed: CrossFit, stack: Stack, kinds: Sequence[str], y: np.ndarray,
    classes: int | None,
) -> tuple[Record, ...]:  # fmt: skip
    """All candidates with the weight of their kind where the most rows are known."""
    weights = dict(zip(kinds, stack.weights[-1].tolist(), strict=True))
    rows = [row | {"weight": weights[row["kind"]]} for row in scores]
    answers = crossed.answers[max(crossed.answers)]
    for kind in kinds:
        if kind not in {row["kind"] for row in scores}:
            loss = float(row_losses(answers[kind], y[crossed.rows], classes).mean())
            rows.append(
                {"kind": kind, "eta": None, "beta": None, "loss": loss, "kept": weights[kind] > 0,
                 "tasks": len(np.unique(crossed.which)), "weight": weights[kind]}
            )  # fmt: skip
    return tuple(rows)
