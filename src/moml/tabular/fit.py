"""`fit_groups`: the table recipe, from rows in groups to a model that knows each of them."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.parts.schedule import cosine
from moml.algorithms.tabular.members import KINDS, Shape, candidates
from moml.errors import ConfigError, DataError, check_count
from moml.models.table import Knots, knots
from moml.models.user import Build
from moml.tabular.model import TableModel, as_input, as_target, padded
from moml.tabular.program import Given, Held, as_given, compiled, problem
from moml.training.progress import bar
from moml.training.sweep import Programs, keep, sweep
from moml.types import Batch, Hyper, Meta

ETAS = (0.003, 0.01)
LOOKS = 20  # how often held-out tasks are looked at during training


Tried = tuple[dict[str, Any], Meta, np.ndarray]  # a setting, its members, their mean answers


def fit_groups(
    x: Any,
    y: Any,
    groups: Sequence[Any],
    *,
    shots: int,
    ordered: bool = False,
    classes: int | None = None,
    held_out: Sequence[int] | None = None,
    weights: Any = None,
    members: int = 3,
    iterations: int | None = None,
    kinds: Sequence[str] | None = None,
    build: Build | None = None,
    seed: int = 0,
    progress: bool = False,
) -> TableModel:
    """Learn from rows x [rows, features], y [rows] of many groups to predict for new ones.

    groups[i] are the rows of task i, in their order where they are `ordered`; a new task will bring
    `shots` rows. Inputs are standardised, and so are targets, or with `classes` they are numbers of
    classes. `held_out` are the tasks that decide when to stop and what to average, a seventh by
    default. Each kind of member is trained with every learning rate and `members` seeds. Rows may
    have `weights` in the loss. `build(inputs, outputs)`: a network of your own in place of ours.
    """
    x, y = _checked(x, y, classes)
    shape = Shape(x.shape[1], classes, ordered, build=build)
    check_count("shots", shots)
    check_count("members", members)
    check_count("seed", seed, least=0, below=2**32)
    groups = [np.asarray(rows, int) for rows in groups]
    held = choose(groups, seed) if held_out is None else tuple(int(i) for i in held_out)
    apart = set(held)
    seen = [rows for i, rows in enumerate(groups) if i not in apart]
    if not seen or not held:
        raise DataError(f"{len(groups)} tasks, {len(held)} of them held out: too few to learn from")
    at = knots(_some(x, np.concatenate(seen), seed))
    test = held_rows(x, y, [groups[i] for i in held], shots, ordered, seed)
    given = as_given(at, x, y, seen, weights, seed)
    tried: list[Tried] = []
    for kind in candidates(shape) if kinds is None else kinds:
        if kind not in KINDS:
            raise ConfigError(f"unknown kind {kind!r}; allowed: {', '.join(KINDS)}")
        tried += train_kind(
            kind, shape, given, test, shots, members=members, iterations=iterations,
            progress=progress,
        )  # fmt: skip
    return _averaged(shape, at, shots, held, tried, test)


def _checked(x: Any, y: Any, classes: int | None) -> tuple[np.ndarray, np.ndarray]:
    x, y = as_input(x), np.asarray(y)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise DataError(f"x must be [rows, features], y [rows]; given {x.shape} and {y.shape}")
    for name, values in {"x": x, "y": y}.items():
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values.reshape(len(x), -1)).all(axis=1))[0])
            raise DataError(f"{name} of row {row} is not finite")
    if classes is not None:
        check_count("classes", classes, least=2)
        if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= classes:
            raise DataError(f"y must be the numbers 0 to {classes - 1} of the classes")
    return x, as_target(Shape(x.shape[1], classes), y)


def choose(groups: Sequence[np.ndarray], seed: int) -> tuple[int, ...]:
    """A seventh of the tasks that have two rows and more, one at least, a thousand at most."""
    able = [i for i, rows in enumerate(groups) if len(rows) > 1]
    if len(groups) < 2 or not able:
        raise DataError(
            f"{len(groups)} tasks, {len(able)} of them with 2 rows and more: some are needed to "
            "learn from, and others of 2 rows and more to be held out"
        )
    count = min(max(1, round(len(able) / 7)), 1000)
    return tuple(int(i) for i in np.random.default_rng(seed).permutation(able)[:count])


def _some(x: np.ndarray, rows: np.ndarray, seed: int, most: int = 100_000) -> np.ndarray:
    chance = np.random.default_rng([seed, 2])
    return x[rows if len(rows) <= most else chance.choice(rows, most, replace=False)]


def held_rows(
    x: np.ndarray, y: np.ndarray, groups: list[np.ndarray], shots: int, ordered: bool, seed: int
) -> Held:
    """Known are min(shots, half the rows), the first ones or any; asked for, up to 64 others."""
    chance = np.random.default_rng([seed, 1])
    known, asked = [], []
    for rows in groups:
        own = rows if ordered else chance.permutation(rows)
        cut = min(shots, len(own) // 2)
        rest = own[cut:]
        known.append(own[:cut])
        asked.append(rest if len(rest) <= 64 else np.sort(chance.choice(rest, 64, replace=False)))
    width = lambda groups: max(1, *(len(rows) for rows in groups)) if groups else 1
    make = lambda some: padded(x, y, some, width(some), len(some))
    return Held(make(known), make(asked))


def train_kind(
    kind: str,
    shape: Shape,
    given: Given,
    test: Held,
    shots: int,
    *,
    members: int,
    iterations: int | None,
    progress: bool,
    models: Meta | None = None,
) -> list[Tried]:
    """Members of one kind side by side; of each the model that did best on held-out tasks.

    They go on from `models`, if there are any, with the smallest learning rate and no memory.
    """
    n = len(given.rows.size)
    steps = max(2000, math.ceil(n / 10)) if iterations is None else iterations
    some, done = problem(kind, shape, shots, steps, given), compiled(kind, shape, shots, steps)
    programs = Programs(
        partial(done.first, given),
        lambda state, *rest: done.stretch(state, given, *rest),
    )
    etas, betas = (ETAS, some.betas) if models is None else (ETAS[:1], some.betas[:1])
    settings = [{"eta": eta, "beta": beta} for eta in etas for beta in betas]
    best: list[Any] = [None, np.full(len(settings) * members, math.inf)]

    with bar(f"{kind} x {len(best[1])}", steps, shown=progress) as advance:

        def look(at: int, meta: Meta, hyper: Hyper | None = None) -> None:
            answers = np.asarray(done.answers(meta, given, test))
            now = task_losses(shape, answers, test.query).sum(axis=-1)
            better = now < best[1]  # false where it is not a number
            best[0] = meta if best[0] is None else keep(jnp.asarray(better), meta, best[0])
            best[1] = np.where(better, now, best[1])
            advance(at, float(best[1].mean() / np.sum(test.query.mask)))

        if models is not None:
            look(0, models)
        sweep(
            some.chosen, some.made.loss, some.init, some.tasks,
            seeds=members, models=models, grid={"eta": etas, "alpha": [0.1]}
            | ({"beta": betas} if hasattr(some.chosen.hyper, "beta") else {}),
            iterations=steps, schedule=cosine(steps), chunk=math.ceil(steps / LOOKS),
            on_chunk=look, programs=programs,
        )  # fmt: skip
    each = np.asarray(done.answers(best[0], given, test))
    rows = []
    for i, setting in enumerate(settings):
        own = slice(i * members, (i + 1) * members)
        meta = jax.tree.map(lambda leaf, own=own: np.asarray(leaf[own]), best[0])
        rows.append(({"kind": kind} | setting, meta, each[own].mean(axis=0)))
    return rows


def _averaged(
    shape: Shape,
    at: Knots,
    shots: int,
    held: tuple[int, ...],
    tried: list[Tried],
    test: Held,
) -> TableModel:
    """All that the held-out tasks cannot tell from the best of them; the fewer they are, the more.

    A candidate is left out where its loss on held-out tasks is above the best one's by more than
    two standard errors of that difference.
    """
    by_task = np.stack([task_losses(shape, each, test.query) for _, _, each in tried])
    above = by_task - by_task[np.argmin(by_task.sum(axis=1))]
    error = math.sqrt(above.shape[1]) * above.std(axis=1)
    kept = above.sum(axis=1) <= 2 * error
    rows, count = float(np.sum(test.query.mask)), len(held)
    scores = [
        setting | {"loss": float(loss.sum()) / rows, "kept": bool(ok), "tasks": count}
        for (setting, _, _), loss, ok in zip(tried, by_task, kept, strict=True)
    ]
    metas: dict[str, list[Meta]] = {}
    for (setting, meta, _), ok in zip(tried, kept, strict=True):
        if ok:
            metas.setdefault(setting["kind"], []).append(meta)
    join = lambda some: jax.tree.map(lambda *leaves: np.concatenate(leaves), *some)
    return TableModel(
        shape, at, {k: join(some) for k, some in metas.items()}, shots, held, tuple(scores)
    )


def task_losses(shape: Shape, answers: np.ndarray, query: Batch) -> np.ndarray:
    """Each task's squared error or log-loss, summed over its rows."""
    if shape.classes is None:
        each = (answers - query.y) ** 2
    else:
        right = np.sum(answers * np.eye(shape.classes, dtype=answers.dtype)[query.y], axis=-1)
        each = -np.log(np.maximum(right, 1e-12))
    return np.sum(query.mask * each, axis=-1)
