"""`fit_groups`: train a table model on rows in groups; `fit_rows`: on rows without groups."""

import math
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import ArrayLike

from moml.algorithms.tabular.members import KINDS, Shape, candidates
from moml.errors import ConfigError, DataError, check_count
from moml.models.table import Knots, knots
from moml.models.user import Build
from moml.tabular.fitting.program import VISIT, table_data
from moml.tabular.fitting.training import (
    Candidate,
    HeldOut,
    clearly_worse,
    task_losses,
    train_members,
)
from moml.tabular.model import TableModel
from moml.tabular.rows import RowLists, as_input, as_target, padded, power, split_rows
from moml.types import Meta, Record, Task

SHARE = 7  # one in so many tasks, or rows, is held out to decide when to stop
PILES = 16  # groups that rows without groups are dealt to: a step draws some rows of each
HELD_ROWS = 1024  # held-out rows without groups, at most
HELD_LEAST = 16  # held-out tasks after padding


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
    fitted = fit_models(
        x, y, groups, shots=shots, ordered=ordered, classes=classes, held_out=held_out,
        weights=weights, members=members, iterations=iterations, kinds={"personal": kinds},
        build=build, seed=seed, progress=progress,
    )  # fmt: skip
    return fitted["personal"]


def fit_models(
    x: ArrayLike,
    y: ArrayLike,
    groups: Sequence[ArrayLike],
    *,
    shots: int,
    ordered: bool,
    classes: int | None,
    kinds: Mapping[str, Sequence[str] | None],
    held_out: Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    members: int = 3,
    iterations: int | None = None,
    build: Build | None = None,
    seed: int = 0,
    progress: bool = False,
    only: Sequence[str] | None = None,
    space_for: Sequence[ArrayLike] | None = None,
    at: Knots | None = None,
    mesh: Mesh | None = None,
    log: Callable[[Record], None] = lambda row: None,
) -> dict[str, TableModel]:
    """Train models of some kinds each, by name, all members side by side; see `fit_groups`.

    Trainings of a table share their compiled programs if they have the same `kinds`, of which
    `only` some models are trained, the same knots `at`, and `space_for` the same groups. `log`
    gets the rows of `train_members`, which spreads members over the devices of a `mesh`.
    """
    x, y = _checked(x, y, classes)
    shape = Shape(x.shape[1], classes, ordered, build=build)
    check_count("shots", shots)
    check_count("members", members)
    check_count("seed", seed, least=0, below=2**32)
    chosen = {n: tuple(candidates(shape) if k is None else k) for n, k in kinds.items()}
    for kind in [kind for some in chosen.values() for kind in some]:
        if kind not in KINDS:
            raise ConfigError(f"kinds must be among {', '.join(KINDS)}; got unknown kind {kind!r}")
    names = list(chosen if only is None else only)
    lists = [np.asarray(rows, int) for rows in groups]
    sizes = np.array([np.size(rows) for rows in (lists if space_for is None else space_for)])
    held = choose(lists, seed) if held_out is None else tuple(int(i) for i in held_out)
    apart = set(held)
    seen = [rows for i, rows in enumerate(lists) if i not in apart]
    if not seen or not held:
        raise DataError(
            f"training needs tasks to learn from and tasks to hold out; got {len(lists)} tasks, "
            f"{len(held)} of them held out"
        )
    at = knots(_sample(x, np.concatenate(seen), seed)) if at is None else at
    widest = round_up(int(sizes.max()))
    space = max(len(held), _held_out(int((sizes > 1).sum())))
    test = held_rows(x, y, [lists[i] for i in held], shots, ordered, seed, widest, space)
    most = len(seen) if shots > VISIT else power(len(sizes))
    tried = train_members(
        [kind for some in chosen.values() for kind in some],
        shape,
        table_data(at, x, y, seen, weights, seed, most),
        test,
        shots,
        widest=widest,
        members=members,
        iterations=iterations,
        progress=progress,
        only=[kind for name in names for kind in chosen[name]],
        mesh=mesh,
        log=log,
    )
    pick = lambda some: [one for kind in some for one in tried[kind]]
    return {
        name: _averaged(
            shape if "custom" in chosen[name] else shape._replace(build=None),
            at,
            shots,
            held,
            pick(chosen[name]),
            test,
        )
        for name in names
    }


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
    count = _held_out(len(able))
    return tuple(int(i) for i in np.random.default_rng(seed).permutation(able)[:count])


def round_up(rows: int) -> int:
    """The next multiple of 4: tables with tasks of about as many rows share programs."""
    return -(-rows // 4) * 4


def _held_out(able: int) -> int:
    """How many of the tasks with 2 rows or more are held out."""
    return min(max(1, round(able / SHARE)), 1000)


def _sample(x: np.ndarray, rows: np.ndarray, seed: int, most: int = 100_000) -> np.ndarray:
    rng = np.random.default_rng([seed, 2])
    return x[rows if len(rows) <= most else rng.choice(rows, most, replace=False)]


def held_rows(
    x: np.ndarray,
    y: np.ndarray,
    groups: RowLists,
    shots: int,
    ordered: bool,
    seed: int,
    widest: int,
    space: int,
) -> HeldOut:
    """Support and up to 64 query rows of held-out tasks, as batches with space for some tasks.

    There are places for all rows of a task of `widest` rows.
    """
    parts = split_rows(groups, shots, ordered, np.random.default_rng([seed, 1]), most=64)
    known = min(shots, widest // 2)
    widths, n = (max(1, known), min(64, widest - known)), max(HELD_LEAST, power(space))
    batches = (padded(x, y, some, width, n) for some, width in zip(parts, widths, strict=True))
    return HeldOut(Task(*batches), len(groups))


def _averaged(
    shape: Shape,
    at: Knots,
    shots: int,
    held: tuple[int, ...],
    tried: list[Candidate],
    test: HeldOut,
) -> TableModel:
    """Average the candidates that held-out tasks cannot tell from the best one.

    A candidate is left out if its loss on held-out tasks exceeds the best one's by more than two
    standard errors of that difference.
    """
    by_task = np.stack([task_losses(shape, answers, test.query) for _, _, answers in tried])
    kept = ~clearly_worse(by_task)
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
