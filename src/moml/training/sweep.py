"""`sweep`: seeds times a grid of hyper-parameters as one program, each a member of a vmap."""

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from jaxtyping import Array, Int, PyTree

from moml.algorithms.method import Factory, Method
from moml.algorithms.parts.schedule import Schedule, constant
from moml.errors import ConfigError, check_count
from moml.kept import kept
from moml.runtime import simulate
from moml.training.check import check_loss, check_params, check_samples
from moml.training.choice.choose import by_rule
from moml.training.compose import (
    check_adapts,
    check_schedule,
    check_start,
    compose,
    first_program,
    init_key,
    init_program,
    run_key,
    samples_to_fill,
)
from moml.training.compose import stacked_hyper as stacked_hyper
from moml.training.loop import Callback, TrainingInfo, all_finite, loop, side_by_side
from moml.training.loop import members as begin_members
from moml.types import Hyper, Key, Loss, Meta, Params, Record, Tasks

IN_SWEEP = "a sweep compares others where grid has beta"


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep: one row a member, in the order of `settings`."""

    method: Method
    settings: list[Record]  # seed, eta, beta, ... of each member
    hyper: Hyper  # leaves [members]
    meta: Meta  # leaves [members, ...]; of a lost member the last finite one
    lost_at: np.ndarray  # the step at which a member diverged, -1 where it did not
    history: np.ndarray  # [members, chunks] mean loss, not a number from divergence on
    samples: int  # drawn by each member

    @property
    def lost(self) -> np.ndarray:
        """Which members diverged."""
        return self.lost_at >= 0

    def each(self, function: Callable[[Meta, Hyper], PyTree]) -> PyTree:
        """`function(meta, hyper)` of every member, vmapped; also of those that are lost."""
        return _each(function)(self.meta, self.hyper)


@kept
def _each(function: Callable[[Meta, Hyper], PyTree]) -> Wrapped:
    return jax.jit(jax.vmap(function))


Grid = Mapping[str, Sequence[float]] | Sequence[Mapping[str, float]]


def grid_of(grid: Grid | None, seeds: int, allowed: Collection[str] | None = None) -> list[Record]:
    """All combinations of the grid's values, or the settings of a list, each with every seed.

    >>> [m["eta"] for m in grid_of({"eta": [0.1, 0.2]}, seeds=2)]
    [0.1, 0.1, 0.2, 0.2]
    >>> len(grid_of([{"eta": 0.1, "beta": 0.3}, {"eta": 0.2, "beta": 0.9}], seeds=1))
    2
    """
    members = range(check_count("seeds", seeds))
    if isinstance(grid, Sequence) and not isinstance(grid, str):
        return [row | {"seed": seed} for row in _listed(grid, allowed) for seed in members]
    grid = dict(grid or {})
    for name, values in grid.items():
        listed = isinstance(values, Sequence | np.ndarray) and len(values)
        if not listed or (allowed is not None and name not in allowed):
            names = "" if allowed is None else f" for {', '.join(allowed)}"
            raise ConfigError(f"grid must have lists{names}; got {name} = {values}")
    columns = [[float(value) for value in values] for values in grid.values()]
    rows = itertools.product(*columns, members)
    return [dict(zip([*grid, "seed"], row, strict=True)) for row in rows]


def _listed(grid: Sequence[Mapping[str, float]], allowed: Collection[str] | None) -> list[Record]:
    """A list of settings, which must all have the same names."""
    alike = all(isinstance(row, Mapping) and row.keys() == grid[0].keys() for row in grid)
    if not grid or not alike or (allowed is not None and not set(grid[0]) <= set(allowed)):
        names = "" if allowed is None else f" of {', '.join(allowed)}"
        raise ConfigError(
            f"a list as grid must have settings with the same names{names}; got {grid}"
        )
    return [{name: float(value) for name, value in row.items()} for row in grid]


def sweep(
    name: str | Method | Factory,
    loss: Loss,
    init: Callable[[Key], Params],
    tasks: Tasks,
    *,
    seeds: int = 5,
    grid: Grid | None = None,
    iterations: int = 10_000,
    schedule: Schedule = constant,
    chunk: int | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    **options: Any,
) -> Sweep:
    """Train every combination of `grid` with every seed, at once.

    A member with seed s is the training `fit(..., init(init_key(s)), seed=s)`. Members that diverge
    are marked, keep their last finite model and take no part in any mean; the others continue.

    Parameters
    ----------
    name, loss, tasks, schedule, chunk, callback, options
        As in `fit`; what a callback is given has an axis of members.
    init
        Makes the first parameters of a member from the key of its seed.
    seeds
        Number of seeds of each combination.
    grid
        Values of the method's traced numbers (eta, beta, ...), by name; or a list of settings, each
        with one value a name.
    iterations
        Of each member; 0 gives the untrained networks, a control.

    Returns
    -------
    A `Sweep`: models, losses, and the members that were lost.

    >>> import moml
    >>> net = moml.mlp(1, 8, 1)
    >>> loss, grid = moml.mse(net.predict), {"eta": [0.01, 0.02]}
    >>> done = moml.sweep("maml", loss, net.init, moml.sine(), seeds=2, grid=grid, iterations=10)
    >>> done.history.shape, int(done.lost.sum())
    ((4, 1), 0)
    """
    check_count("iterations", iterations, least=0)
    chosen = compose(name, loss, tasks, options, iterations)
    traced = chosen.hyper._asdict()
    for name_ in set(options) & set(traced):
        if not isinstance(options[name_], str):
            raise ConfigError(f"{name_} must be in grid: grid={{'{name_}': [{options[name_]}]}}")
    settings = grid_of(grid, seeds, traced)
    if chosen.betas and "beta" not in settings[0]:
        chosen = by_rule(chosen, IN_SWEEP)
    chosen = chosen._replace(betas=())
    seeds_, keys = seeds_and_keys(settings)
    try:
        params = init_program(init)(seeds_)
    except TypeError:
        check_params(init(init_key(0)))  # names the leaf that is no array
        raise
    example = check_params(jax.tree.map(lambda leaf: leaf[0], params))
    check_samples(chosen.algorithm.needs, tasks)
    check_loss(loss, example, tasks, chosen.k)
    hyper = stacked_hyper(chosen, example, settings)
    algorithm = chosen.algorithm
    fits = lambda: simulate.steps_that_fit(algorithm, tasks, (1 << 26) // len(settings))
    steps = math.ceil(iterations / algorithm.iterations)
    length = max(1, min(steps, fits() if chunk is None else check_count("chunk", chunk)))
    run = simulate.program(algorithm, schedule, members=True)
    one = jax.tree.map(lambda leaf: leaf[0], hyper)
    check_adapts(chosen, example, one)
    check_schedule(schedule, one)
    begun = first_program(chosen, members=True)(params, tasks, keys, hyper)
    check_start(bool(all_finite(begun.meta)), chosen)
    history: list[np.ndarray] = []

    def after(info: TrainingInfo) -> bool:
        history.append(info.loss)
        return callback is not None and bool(callback(info._replace(hyper=hyper)))

    carry, done = loop(
        f"{chosen.name} x {len(settings)}",
        side_by_side(simulate.advance(run, tasks, keys, hyper, length)),
        begin_members(begun),
        steps=steps,
        length=length,
        after=after,
        progress=progress,
    )
    drawn = done * simulate.samples_per_step(algorithm.needs, tasks) + samples_to_fill(chosen)
    seen = np.stack(history, axis=1) if history else np.zeros((len(settings), 0))
    lost_at = np.asarray(carry.lost_at)
    return Sweep(chosen, settings, hyper, carry.good, lost_at, seen, drawn * tasks.ways)


def seeds_and_keys(settings: list[Record]) -> tuple[Int[Array, " members"], Key]:
    """The seeds of all members, and the keys of their runs."""
    seeds = jnp.asarray([row["seed"] for row in settings])
    return seeds, jax.vmap(run_key)(seeds)
