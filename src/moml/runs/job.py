"""What a run in a folder computes: one training, or the members of a sweep."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import Schedule, constant, cosine, decay_at
from moml.config.build import Built, build
from moml.config.config import Config, method_options, step_sizes
from moml.config.table_tasks import Held
from moml.errors import ConfigError
from moml.runtime import simulate
from moml.runtime.account import Cost, spending
from moml.runtime.process_group import ALONE, ProcessGroup
from moml.storage.rows_file import layout_of
from moml.storage.rows_on_disk import RowsOnDisk
from moml.training.check import check_loss, check_params
from moml.training.compose import (
    compose,
    described,
    hyper_of,
    init_key,
    run_key,
    samples_to_fill,
    start,
)
from moml.training.disk import OnDisk, split
from moml.training.evaluate import scores_on
from moml.training.execution import Execution
from moml.training.loop import Members, Program, members, side_by_side
from moml.training.on_mesh import OnMesh
from moml.training.sweep import first_state, seeds_and_keys, stacked_hyper
from moml.types import Adapt, Hyper, Key, Meta, Params, Record, State, Tasks

Spending = Callable[[int, int], Cost]
Scores = Callable[[Meta, Hyper], Float[Array, " n"]]
SCORED = 1001  # seed of the samples that scores use


class Plan(NamedTuple):
    """A configuration's problem and method, for one training or many."""

    built: Built
    method: Method
    run: simulate.Stretch
    score: Callable[[Meta, Hyper], Float[Array, ""]]
    steps: int  # calls of the method's `step` in all
    length: int  # calls in one stretch

    def samples(self, steps: int) -> int:
        """Samples drawn in so many steps."""
        each = simulate.samples_per_step(self.method.algorithm.needs)
        return (steps * each + samples_to_fill(self.method)) * self.built.tasks.ways

    def cost(self, hyper: Hyper, keys: Key) -> Spending | None:
        """What the rounds of a run, or of many, cost; None where there are none."""
        first = lambda hyper: self.method.algorithm.init(self.built.init(init_key(0)), hyper)
        meta = jax.eval_shape(first, hyper).meta
        return spending(self.method, meta, self.built.tasks, keys)


class Job(NamedTuple):
    """A training to run in a folder."""

    name: str
    about: str  # named where it diverges
    plan: Plan
    hyper: Hyper
    execution: Execution
    score: Callable[[State], np.ndarray]  # carry -> score on unseen tasks, of each member
    cost: Spending | None  # of the rounds from one on, so many; None without rounds


def plan_of(config: Config, held: Held = lambda task: True) -> Plan:
    """Compose a configuration's method for its problem, for the tasks that are `held` here."""
    built = build(config, held)
    options = method_options(config, built.features)
    options.pop("iterations", None)
    chosen = compose(config.method, built.loss, built.tasks, options, config.iterations)
    check_loss(built.loss, check_params(built.init(init_key(0))), built.tasks, chosen.k)
    once = chosen.algorithm.iterations
    each = each_of(config, built, built.unseen, chosen.adaptation(config.test_steps))
    return Plan(
        built,
        chosen,
        simulate.stretch(chosen.algorithm, built.tasks, schedule_of(config)),
        lambda meta, hyper: jnp.mean(each(meta, hyper)),
        math.ceil(config.iterations / once),
        max(1, config.log_every // once),
    )


def each_of(config: Config, built: Built, tasks: Tasks, adapt: Adapt) -> Scores:
    """The score of each of some tasks by a configuration: (meta, hyper) -> [tasks]."""
    return scores_on(
        built.score,
        adapt,
        tasks,
        jax.random.key(SCORED),
        shots=config.shots,
        queries=built.queries,
        chunk=built.at_once,
    )


def schedule_of(config: Config) -> Schedule:
    """How eta falls over a run."""
    if config.schedule == "cosine":
        return cosine(config.iterations)
    at = int(config.decay_after * config.iterations)
    return decay_at(at) if config.decay_after < 1 else constant


def sizes_of(config: Config) -> dict[str, float]:
    """The step sizes that a configuration gives."""
    return step_sizes(config)


def single(
    config: Config,
    plan: Plan | None = None,
    *,
    folder: Path | None = None,
    params: Params | None = None,
    mesh: Mesh | None = None,
    group: ProcessGroup = ALONE,
) -> Job:
    """One training from `params`, or from those of the seed; it stops where it diverges.

    It executes on the devices of a `mesh`, or on one; the latter with its memories in `folder`
    where the configuration says so.
    """
    plan = plan_of(config) if plan is None else plan
    params = plan.built.init(init_key(config.seed)) if params is None else params
    hyper = hyper_of(plan.method, params, sizes_of(config))
    key, tasks, method = run_key(config.seed), plan.built.tasks, plan.method
    first = lambda: jax.jit(start(plan.method, tasks))(params, key, hyper)
    if mesh is not None:
        if config.memory == "disk":
            raise ConfigError("memory = disk must run on one device of one process; got several")
        execution: Execution = OnMesh(
            plan.method, tasks, mesh, group, schedule_of(config), params, key, hyper, first
        )
    elif config.memory == "disk" and folder is not None:
        like = jax.eval_shape(plan.method.algorithm.init, params, hyper)
        execution = OnDisk(
            plan.method.algorithm,
            tasks,
            store_of(config, folder, like),
            params,
            key,
            hyper,
            steps=plan.steps,
            length=plan.length,
            schedule=schedule_of(config),
            eager=method.k if method.eager else 0,
        )
    else:
        program = simulate.compiled(plan.run)
        advance = lambda state, begin, size: program(state, key, begin, hyper, size)
        execution = Execution(first, advance)
    score = jax.jit(plan.score)
    about = f"seed {config.seed}, {described(hyper)}"
    scored = lambda carry: np.asarray(score(execution.meta(carry), hyper), float)
    return Job(config.method, about, plan, hyper, execution, scored, plan.cost(hyper, key))


def store_of(config: Config, folder: Path, like: State) -> RowsOnDisk:
    """Where a run has its rows; `like` is a state of its method, or its shapes."""
    place = folder / "memory" if config.memory_dir is None else Path(config.memory_dir)
    rows = split(like)[1]
    return RowsOnDisk(place, folder, jax.tree.leaves(rows)[0].shape[0], layout_of(rows))


def many(config: Config, settings: list[Record], plan: Plan, program: Program | None = None) -> Job:
    """All settings side by side, by a program over members; those that diverge are marked."""
    program = simulate.compiled(plan.run, members=True) if program is None else program
    built = plan.built
    hyper = stacked_hyper(plan.method, built.init(init_key(0)), settings, sizes_of(config))
    seeds, keys = seeds_and_keys(settings)
    first = jax.jit(jax.vmap(first_state(plan.method, built.init, built.tasks)))
    score = jax.jit(jax.vmap(plan.score))

    def scored(carry: Members) -> np.ndarray:
        each = np.asarray(score(carry.good, hyper), float)
        return np.where(np.asarray(carry.lost_at) < 0, each, np.nan)

    advance = side_by_side(program, keys, hyper)
    execution = Execution(lambda: members(first(seeds, keys, hyper)), advance)
    cost = plan.cost(jax.tree.map(lambda leaf: leaf[0], hyper), keys)
    name = f"{config.method} x {len(settings)}"
    return Job(name, "", plan, hyper, execution, scored, cost)
