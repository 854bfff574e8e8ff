"""Many runs as one program: seeds x eta x beta x alpha side by side, each a member of a vmap."""

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.method import Factory, Method
from moml.algorithms.parts.schedule import Schedule, constant
from moml.errors import ConfigError, check_count
from moml.runtime import simulate
from moml.training.check import check_loss, check_params
from moml.training.compose import (
    check_adapts,
    check_start,
    compose,
    hyper_of,
    init_key,
    run_key,
    samples_to_fill,
    start,
)
from moml.training.fit import all_finite, chunks, first_bad
from moml.training.progress import bar
from moml.types import Hyper, Key, Loss, Meta, Params, Tasks


@dataclass(frozen=True)
class Sweep:
    """What a sweep leaves: one row a member, in the order of `settings`."""

    method: Method
    settings: list[dict[str, Any]]  # seed, eta, beta, ... of each member
    hyper: Hyper  # leaves [members]
    meta: Meta  # leaves [members, ...]; of a lost member the last finite one
    lost_at: np.ndarray  # the step at which a member diverged, -1 where it did not
    history: np.ndarray  # [members, chunks] mean loss, not a number from divergence on
    samples: int  # drawn by each member

    @property
    def lost(self) -> np.ndarray:
        """Which members diverged."""
        return self.lost_at >= 0

    def each(self, function: Callable[[Meta, Hyper], Any]) -> Any:
        """`function(meta, hyper)` of every member, vmapped; mind `lost`."""
        return jax.jit(jax.vmap(function))(self.meta, self.hyper)


class Programs(NamedTuple):
    """The two programs of a sweep, over its members."""

    first: Callable[[Any, Any, Hyper], Any]  # seeds, keys, hyper -> states
    stretch: Callable[..., Any]  # states, keys, first step, hyper, length -> states, info


def grid_of(
    grid: Mapping[str, Sequence[float]] | None, seeds: int, allowed: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """All combinations of the grid's values, each with every seed.

    >>> [m["eta"] for m in grid_of({"eta": [0.1, 0.2]}, seeds=2)]
    [0.1, 0.1, 0.2, 0.2]
    """
    grid = dict(grid or {})
    for name, values in grid.items():
        listed = isinstance(values, Sequence | np.ndarray) and len(values)
        if not listed or (allowed is not None and name not in allowed):
            names = "" if allowed is None else f" for {', '.join(allowed)}"
            raise ConfigError(f"grid must have lists{names}; got {name} = {values}")
    columns = [[float(value) for value in values] for values in grid.values()]
    rows = itertools.product(*columns, range(check_count("seeds", seeds)))
    return [dict(zip([*grid, "seed"], row, strict=True)) for row in rows]


def sweep(
    name: str | Method | Factory,
    loss: Loss,
    init: Callable[[Key], Params],
    tasks: Tasks,
    *,
    seeds: int = 5,
    grid: Mapping[str, Sequence[float]] | None = None,
    iterations: int = 10_000,
    schedule: Schedule = constant,
    chunk: int | None = None,
    on_chunk: Callable[[int, Meta, Hyper], None] | None = None,
    programs: Programs | None = None,
    models: Meta | None = None,
    progress: bool = False,
    **options: Any,
) -> Sweep:
    """Train every combination of `grid`, lists of eta, beta, ..., with every seed at once.

    A member with seed s is the run `fit(..., init(init_key(s)), seed=s)`. Members that diverge are
    marked, keep their last finite model and take no part in any mean; the others go on. With 0
    iterations the members are the untrained networks, a control. `models`, leaves [members, ...],
    take the first networks' place; memories begin as they do for those. `programs`: those of a
    sweep like this one that were compiled before.
    """
    check_count("iterations", iterations, least=0)
    if programs is None:
        example = check_params(init(init_key(0)))
    else:
        example = jax.eval_shape(init, init_key(0))
    chosen = compose(name, loss, tasks, options, iterations)
    traced = chosen.hyper._asdict()
    for name_ in set(options) & set(traced):
        raise ConfigError(f"{name_} goes into the grid: grid={{'{name_}': [{options[name_]}]}}")
    settings = grid_of(grid, seeds, traced)
    check_loss(loss, example, tasks, chosen.k)
    pick = lambda row: {name: value for name, value in row.items() if name != "seed"}
    rows = [hyper_of(chosen, example, pick(row)) for row in settings]
    hyper = jax.tree.map(lambda *values: jnp.stack(values), *rows)
    algorithm = chosen.algorithm
    fits = lambda: simulate.steps_that_fit(algorithm, tasks, (1 << 26) // len(settings))
    length = fits() if chunk is None else check_count("chunk", chunk)
    steps = math.ceil(iterations / algorithm.iterations)
    if programs is None:
        run = simulate.compiled(simulate.stretch(algorithm, tasks, schedule), members=True)
        programs = Programs(jax.jit(jax.vmap(first_state(chosen, init, tasks))), run)
    check_adapts(chosen, example, rows[0])
    numbers = jnp.asarray([row["seed"] for row in settings])
    keys = jax.vmap(run_key)(numbers)
    begun = programs.first(numbers, keys, hyper)
    if models is not None:
        begun = begun._replace(meta=jax.tree.map(jnp.array, models))  # copies: a state is consumed
    check_start(bool(_finite(begun.meta).all()), chosen)
    good = jax.tree.map(jnp.copy, begun.meta)
    lost_at = np.full(len(settings), -1)
    history: list[np.ndarray] = []
    done = 0
    with bar(f"{chosen.name} x {len(settings)}", steps, shown=progress) as advance:
        for end, state, info in chunks(programs.stretch, begun, keys, hyper, steps, length):
            losses = np.asarray(info.loss)
            good, lost_at = surviving(state.meta, losses, good, lost_at, done)
            alive = lost_at < 0
            history.append(np.where(alive, losses.mean(axis=1), np.nan))
            done = end
            advance(done, float(history[-1][alive].mean()) if alive.any() else math.nan)
            if on_chunk is not None:
                on_chunk(done, good, hyper)
    drawn = done * simulate.samples_per_step(algorithm.needs) + samples_to_fill(chosen)
    drawn *= tasks.ways
    shown = np.stack(history, axis=1) if history else np.zeros((len(settings), 0))
    return Sweep(chosen, settings, hyper, good, lost_at, shown, drawn)


def first_state(
    chosen: Method, init: Callable[[Key], Params], tasks: Tasks
) -> Callable[[Any, Key, Hyper], Any]:
    """A member's state before its first step, of its seed, key and hyper-parameters."""
    return lambda seed, key, hyper: start(chosen, tasks)(init(init_key(seed)), key, hyper)


_finite = jax.jit(jax.vmap(all_finite))


@jax.jit
@jax.vmap
def keep(ok: Any, new: Meta, old: Meta) -> Meta:
    """Of each member the new model where `ok`, else the old one."""
    return jax.tree.map(lambda n, o: jnp.where(ok, n, o), new, old)


def surviving(
    meta: Meta, losses: np.ndarray, good: Meta, lost_at: np.ndarray, begin: int
) -> tuple[Meta, np.ndarray]:
    """Every member's last finite model, and the step it was lost at, after a stretch."""
    ok = np.isfinite(losses).all(axis=1) & np.asarray(_finite(meta))
    newly, lost_at = ~ok & (lost_at < 0), np.array(lost_at)
    lost_at[newly] = [begin + first_bad(row) for row in losses[newly]]
    return keep(jnp.asarray(lost_at < 0), meta, good), lost_at


def mean_of_seeds(values: np.ndarray, lost: np.ndarray) -> tuple[float | None, float | None]:
    """Mean and standard deviation (ddof 0) over the members that were not lost; None if all were.

    >>> mean_of_seeds(np.array([1.0, 3.0, np.nan]), np.array([False, False, True]))
    (2.0, 1.0)
    """
    kept = np.asarray(values)[~np.asarray(lost)]
    return (float(kept.mean()), float(kept.std())) if kept.size else (None, None)


def means_to_choose_by(values: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Means over the seeds that were not lost, [..., seeds] -> [...]; -inf where more were lost.

    A setting that loses fewer seeds than another is better, whatever the others reach.

    >>> means_to_choose_by(np.array([[1.0, 3.0], [5.0, 9.0]]), np.array([[True, False]] * 2))
    array([3., 9.])
    """
    left = np.broadcast_to(~np.asarray(lost), values.shape)
    count = left.sum(axis=-1)
    means = np.where(left, values, 0.0).sum(axis=-1) / np.maximum(count, 1)
    return np.where((count == count.max()) & (count > 0), means, -np.inf)
