"""`fit_groups`: train a table model on rows in groups; `fit_rows`: on rows without groups."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from moml.algorithms.parts.schedule import cosine
from moml.algorithms.tabular.members import KINDS, Shape, candidates
from moml.algorithms.tabular.rivals import row_losses
from moml.errors import ConfigError, DataError, check_count
from moml.models.table import Knots, knots
from moml.models.user import Build
from moml.tabular.model import TableModel
from moml.tabular.program import TableData, compiled, setup, table_data
from moml.tabular.rows import RowLists, as_input, as_target, padded, split_rows
from moml.training.loop import keep
from moml.training.progress import bar
from moml.training.sweep import Programs, sweep
from moml.types import Batch, Meta, Record, Task

ETAS = (0.003, 0.01)
LOOKS = 20  # number of scores on held-out tasks during training
SHARE = 7  # one in so many tasks, or rows, is held out to decide when to stop
PILES = 16  # groups that rows without groups are dealt to: a step draws some rows of each
HELD_ROWS = 1024  # held-out rows without groups, at most

Candidate = tuple[Record, Meta, np.ndarray]  # a setting, its members, their mean answers


def fit_groups(
    x: ArrayLike,
    y: ArrayLike,
    groups: Sequence[ArrayLike],
    *,
    shots: int,
    ordered: bool = False,
    classes: int | None = None,
    held_out: Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    members: int = 3,
    iterations: int | None = None,
    kinds: Sequence[str] | None = None,
    build: Build | None = None,
    seed: int = 0,
    progress: bool = False,
) -> TableModel:
    """Train a model that adapts to new groups, on rows x [rows, features], y [rows].

    Inputs are standardised; targets are too, or with `classes` they are class numbers. groups[i]
    are the rows of task i, in their order if `ordered`. A new task will have `shots` known rows.
    The tasks `held_out`, a seventh by default, decide when to stop and what to average. Each kind
    of member is trained with every learning rate and `members` seeds. `weights` weigh rows in the
    loss. `build(inputs, outputs)` makes a network to use instead of ours.
    """
    x, y = _checked(x, y, classes)
    shape = Shape(x.shape[1], classes, ordered, build=build)
    check_count("shots", shots)
    check_count("members", members)
    check_count("seed", seed, least=0, below=2**32)
    lists = [np.asarray(rows, int) for rows in groups]
    held = choose(lists, seed) if held_out is None else tuple(int(i) for i in held_out)
    seen = [rows for i, rows in enumerate(lists) if i not in set(held)]
    if not seen or not held:
        raise DataError(
            f"training needs tasks to learn from and tasks to hold out; got {len(lists)} tasks, "
            f"{len(held)} of them held out"
        )
    at = knots(_sample(x, np.concatenate(seen), seed))
    test = held_rows(x, y, [lists[i] for i in held], shots, ordered, seed)
    given = table_data(at, x, y, seen, weights, seed)
    tried: list[Candidate] = []
    for kind in candidates(shape) if kinds is None else kinds:
        if kind not in KINDS:
            raise ConfigError(f"kinds must be among {', '.join(KINDS)}; got unknown kind {kind!r}")
        tried += train_kind(
            kind, shape, given, test, shots, members=members, iterations=iterations,
            progress=progress,
        )  # fmt: skip
    return _averaged(shape, at, shots, held, tried, test)


def fit_rows(
    x: np.ndarray,
    y: np.ndarray,
    *,
    classes: int | None = None,
    weights: ArrayLike | None = None,
    members: int = 3,
    iterations: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> TableModel:
    """Train one pooled model on rows x [rows, features], y [rows] without groups.

    The number of held-out rows is a power of two, so that tables share compiled programs.
    """
    n = len(x)
    if n < 2:
        raise DataError(f"at least 2 rows are needed; got n_samples = {n}")
    held = min(HELD_ROWS, 1 << max(0, (n // SHARE).bit_length() - 1))
    rows = np.random.default_rng([seed, 6]).permutation(n)
    rest = rows[held:]
    piles = [rest[i::PILES] if len(rest) >= PILES else rest for i in range(PILES)]
    return fit_groups(
        x, y, [*rows[:held, None], *piles], shots=1, held_out=range(held), kinds=["pooled"],
        classes=classes, weights=weights, members=members, seed=seed, progress=progress,
        iterations=max(2000, math.ceil(n / 100)) if iterations is None else iterations,
    )  # fmt: skip


def _checked(x: ArrayLike, y: ArrayLike, classes: int | None) -> tuple[np.ndarray, np.ndarray]:
    x, y = as_input(x), np.asarray(y)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise DataError(f"x must be [rows, features] and y [rows]; got {x.shape} and {y.shape}")
    for name, values in {"x": x, "y": y}.items():
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values.reshape(len(x), -1)).all(axis=1))[0])
            raise DataError(f"{name} of row {row} is not finite")
    if classes is not None:
        check_count("classes", classes, least=2)
        if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= classes:
            raise DataError(f"y must be class numbers from 0 to {classes - 1}")
    return x, as_target(Shape(x.shape[1], classes), y)


def choose(groups: RowLists, seed: int) -> tuple[int, ...]:
    """Hold out a seventh of the tasks with 2 rows or more, at least one, at most a thousand."""
    able = [i for i, rows in enumerate(groups) if len(rows) > 1]
    if len(groups) < 2 or not able:
        raise DataError(
            "training needs tasks to learn from and tasks of 2 rows or more to hold out; got "
            f"{len(groups)} tasks, {len(able)} of them with 2 rows or more"
        )
    count = min(max(1, round(len(able) / SHARE)), 1000)
    return tuple(int(i) for i in np.random.default_rng(seed).permutation(able)[:count])


def _sample(x: np.ndarray, rows: np.ndarray, seed: int, most: int = 100_000) -> np.ndarray:
    rng = np.random.default_rng([seed, 2])
    return x[rows if len(rows) <= most else rng.choice(rows, most, replace=False)]


def held_rows(
    x: np.ndarray, y: np.ndarray, groups: RowLists, shots: int, ordered: bool, seed: int
) -> Task:
    """Support and up to 64 query rows of held-out tasks, as batches."""
    parts = split_rows(groups, shots, ordered, np.random.default_rng([seed, 1]), most=64)
    width = lambda groups: max(1, *(len(rows) for rows in groups)) if groups else 1
    return Task(*(padded(x, y, some, width(some), len(some)) for some in parts))


def train_kind(
    kind: str,
    shape: Shape,
    given: TableData,
    test: Task,
    shots: int,
    *,
    members: int,
    iterations: int | None,
    progress: bool,
    models: Meta | None = None,
) -> list[Candidate]:
    """Train all members of one kind at once; keep of each the model best on held-out tasks.

    With `models` they continue from these, with the smallest learning rate and no memory.
    """
    n = len(given.rows.size)
    steps = max(2000, math.ceil(n / 10)) if iterations is None else iterations
    some, done = setup(kind, shape, shots, steps, given), compiled(kind, shape, shots, steps)
    programs = Programs(
        lambda seeds, tasks, *rest: done.first(given, seeds, *rest),
        lambda state, tasks, *rest: done.stretch(state, given, *rest),
    )
    etas, betas = (ETAS, some.betas) if models is None else (ETAS[:1], some.betas[:1])
    settings = [{"eta": eta, "beta": beta} for eta in etas for beta in betas]
    best: Meta = None
    least = np.full(len(settings) * members, math.inf)

    with bar(f"{kind} x {len(least)}", steps, shown=progress) as advance:

        def look(at: int, meta: Meta) -> None:
            nonlocal best, least
            answers = np.asarray(done.answers(meta, given, test))
            now = task_losses(shape, answers, test.query).sum(axis=-1)
            better = now < least  # False for NaN
            best = meta if best is None else keep(jnp.asarray(better), meta, best)
            least = np.where(better, now, least)
            advance(at, float(least.mean() / np.sum(test.query.mask)))

        if models is not None:
            look(0, models)
        sweep(
            some.chosen, some.made.loss, some.init, some.tasks,
            seeds=members, models=models, grid={"eta": etas, "alpha": [0.1]}
            | ({"beta": betas} if hasattr(some.chosen.hyper, "beta") else {}),
            iterations=steps, schedule=cosine(steps), chunk=math.ceil(steps / LOOKS),
            callback=lambda info: look(info.step, info.meta), programs=programs,
        )  # fmt: skip
    answers = np.asarray(done.answers(best, given, test))
    found = []
    for i, setting in enumerate(settings):
        seeds = slice(i * members, (i + 1) * members)
        meta = jax.tree.map(lambda leaf, seeds=seeds: np.asarray(leaf[seeds]), best)
        found.append(({"kind": kind} | setting, meta, answers[seeds].mean(axis=0)))
    return found


def _averaged(
    shape: Shape,
    at: Knots,
    shots: int,
    held: tuple[int, ...],
    tried: list[Candidate],
    test: Task,
) -> TableModel:
    """Average the candidates that held-out tasks cannot tell from the best one.

    A candidate is left out if its loss on held-out tasks exceeds the best one's by more than two
    standard errors of that difference.
    """
    by_task = np.stack([task_losses(shape, answers, test.query) for _, _, answers in tried])
    above = by_task - by_task[np.argmin(by_task.sum(axis=1))]
    error = math.sqrt(above.shape[1]) * above.std(axis=1)
    kept = above.sum(axis=1) <= 2 * error
    rows, scores = float(np.sum(test.query.mask)), []
    metas: dict[str, list[Meta]] = {}
    for (setting, meta, _), loss, ok in zip(tried, by_task, kept, strict=True):
        scores.append(
            setting | {"loss": float(loss.sum()) / rows, "kept": bool(ok), "tasks": len(held)}
        )
        if ok:
            metas.setdefault(setting["kind"], []).append(meta)
    join = lambda some: jax.tree.map(lambda *leaves: np.concatenate(leaves), *some)
    joined = {kind: join(some) for kind, some in metas.items()}
    return TableModel(shape, at, joined, shots, held, tuple(scores))


def task_losses(shape: Shape, answers: np.ndarray, query: Batch) -> np.ndarray:
    """Each task's squared error or log-loss, summed over its rows."""
    return np.sum(query.mask * row_losses(answers, query.y, shape.classes), axis=-1)
