"""What a run in a folder computes: one training, or the members of a sweep."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.stages import Wrapped
from jaxtyping import Array, Float

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import Schedule, constant, cosine, decay_at
from moml.algorithms.signature import Adaptation
from moml.config.config import Config, method_options, step_sizes
from moml.config.problems.problem import Built, Held
from moml.errors import ConfigError
from moml.kept import kept
from moml.runtime import simulate
from moml.runtime.account import Cost, spending
from moml.runtime.process_group import ALONE, ProcessGroup
from moml.storage.rows_file import layout_of
from moml.storage.rows_on_disk import RowsOnDisk
from moml.training.check import check_loss, check_params, check_samples
from moml.training.clients import ClientScores, Kept, kept_each, kept_scores, mean_of_known
from moml.training.compose import (
    compose,
    described,
    first_program,
    hyper_of,
    init_key,
    init_program,
    run_key,
    samples_to_fill,
)
from moml.training.disk import OnDisk, split
from moml.training.evaluate import Score, check_shots, most_samples, scores_on
from moml.training.execution import Execution
from moml.training.loop import Members, members, side_by_side
from moml.training.on_mesh import OnMesh
from moml.training.sweep import seeds_and_keys, stacked_hyper
from moml.types import Hyper, Key, Meta, Params, Record, State, Tasks

Spending = Callable[[int, int], Cost]
ScoresOn = Callable[[Meta, Hyper, Tasks, Key], Float[Array, " n"]]
SCORED = 1001  # seed of the samples that scores use


class Plan(NamedTuple):
    """A configuration's problem and method, for one training or many."""

    built: Built
    method: Method
    schedule: Schedule
    score: Callable[[Meta, Hyper], Float[Array, ""]]
    score_members: Callable[[Meta, Hyper], Float[Array, " members"]]
    steps: int  # calls of the method's `step` in all
    length: int  # calls in one stretch
    model: str | None = None  # which of a client's models is scored; None: unseen tasks are
    kept: Kept | None = None  # scores the models that clients keep

    def samples(self, steps: int) -> int:
        """Samples drawn in so many steps."""
        each = simulate.samples_per_step(self.method.algorithm.needs, self.built.tasks)
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
    built = config.problem.build(config, held)
    options = method_options(config, built.features)
    options.pop("iterations", None)
    chosen = compose(config.method, built.loss, built.tasks, options, config.iterations)
    check_samples(chosen.algorithm.needs, built.tasks)
    check_loss(built.loss, check_params(built.init(init_key(0))), built.tasks, chosen.k)
    once = chosen.algorithm.iterations
    each = scores_of(config, built, built.unseen, chosen.adaptation)
    given = built.unseen, jax.random.key(SCORED)
    one, all_ = _mean_program(each), _mean_program(each, members=True)
    steps = math.ceil(config.iterations / once)
    return Plan(
        built,
        chosen,
        schedule_of(config),
        lambda meta, hyper: one(meta, hyper, *given),
        lambda meta, hyper: all_(meta, hyper, *given),
        steps,
        max(1, min(steps, config.log_every // once)),
        *_scored_model(chosen, built),
    )


def _scored_model(chosen: Method, built: Built) -> tuple[str | None, Kept | None]:
    """What a run's score is of: where clients that train are scored, their own models if kept."""
    by = client_scores_of(built) if chosen.algorithm.rounds is not None else None
    if by is None or by.tested is not built.unseen:
        return None, None
    kept = kept_scores(chosen, by)
    return "adapted" if kept is None else "kept", kept


def client_scores_of(built: Built) -> ClientScores | None:
    """How clients that train are scored, of problems with samples of theirs to train and to test.

    None where their samples have no end.
    """
    own = None if built.own is None else built.own()
    if own is None or own.tasks.full_from is None or not built.tasks.sized:
        return None
    return ClientScores(own.tasks, own.score, built.at_once)


def scores_of(config: Config, built: Built, tasks: Tasks, adaptation: Adaptation) -> ScoresOn:
    """The `scores_on` of a configuration, for tasks like these."""
    check_shots(tasks, config.shots, built.queries)
    most = most_samples(tasks, built.queries)
    return _scores_on(
        built.score, adaptation, config.test_steps, config.shots, built.queries, most, built.at_once
    )


@kept
def _scores_on(
    score: Score,
    adaptation: Adaptation,
    steps: int,
    shots: int,
    queries: int | None,
    most: int,
    chunk: int,
) -> ScoresOn:
    return scores_on(score, adaptation(steps), shots=shots, queries=queries, most=most, chunk=chunk)


@kept
def _mean_program(each: ScoresOn, *, members: bool = False) -> Wrapped:
    mean = lambda meta, hyper, tasks, key: jnp.mean(each(meta, hyper, tasks, key))
    return jax.jit(jax.vmap(mean, (0, 0, None, None)) if members else mean)


def each_of(
    config: Config, built: Built, tasks: Tasks, adaptation: Adaptation, meta: Meta, hyper: Hyper
) -> Float[Array, " n"]:
    """The score of a model on each of some tasks, by a configuration."""
    program = jax.jit(scores_of(config, built, tasks, adaptation))
    return program(meta, hyper, tasks, jax.random.key(SCORED))


def schedule_of(config: Config) -> Schedule:
    """How eta falls over a run."""
    if config.schedule == "cosine":
        return cosine(config.iterations)
    at = int(config.decay_after * config.iterations)
    return decay_at(at) if config.decay_after < 1 else constant


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
    hyper = hyper_of(plan.method, params, step_sizes(config))
    key, tasks, method = run_key(config.seed), plan.built.tasks, plan.method
    first = partial(first_program(plan.method), params, tasks, key, hyper)
    if mesh is not None:
        if config.memory == "disk":
            raise ConfigError("memory = disk must run on one device of one process; got several")
        execution: Execution = OnMesh(
            plan.method, tasks, mesh, group, plan.schedule, params, key, hyper, first,
            plan.length,
        )  # fmt: skip
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
            schedule=plan.schedule,
            eager=method.k if method.eager else 0,
        )
    else:
        program = simulate.program(method.algorithm, plan.schedule)
        execution = Execution(first, simulate.advance(program, tasks, key, hyper, plan.length))
    about = f"seed {config.seed}, {described(hyper)}"
    own = None if plan.kept is None else jax.jit(plan.kept)

    def scored(carry: State) -> np.ndarray:
        meta = execution.meta(carry)
        if own is None:
            return np.asarray(plan.score(meta, hyper), float)
        each = kept_each(own, meta, plan.built.unseen, execution.stores(carry))
        return np.asarray(mean_of_known(*map(jnp.asarray, each)), float)

    return Job(config.method, about, plan, hyper, execution, scored, plan.cost(hyper, key))


@kept
def _kept_mean(scores: Kept) -> Wrapped:
    """Jitted, of members: the mean score of what each member's clients keep."""
    mean = lambda *given: mean_of_known(*scores(*given))
    return jax.jit(jax.vmap(mean, (0, 0, None, None)))


def store_of(config: Config, folder: Path, like: State) -> RowsOnDisk:
    """Where a run has its rows; `like` is a state of its method, or its shapes."""
    place = folder / "memory" if config.memory_dir is None else Path(config.memory_dir)
    rows = split(like)[1]
    return RowsOnDisk(place, folder, jax.tree.leaves(rows)[0].shape[0], layout_of(rows))


def many(config: Config, settings: list[Record], plan: Plan) -> Job:
    """All settings side by side, by a program over members; those that diverge are marked."""
    program = simulate.program(plan.method.algorithm, plan.schedule, members=True)
    built = plan.built
    hyper = stacked_hyper(plan.method, built.init(init_key(0)), settings, step_sizes(config))
    seeds, keys = seeds_and_keys(settings)
    first = first_program(plan.method, members=True)

    ids = jnp.arange(built.unseen.n or 0, dtype=jnp.int32)
    own = plan.kept and _kept_mean(plan.kept)

    def scored(carry: Members) -> np.ndarray:
        if own is None:
            values = plan.score_members(carry.good, hyper)
        else:
            values = own(carry.good, carry.state.memory, built.unseen, ids)
        each = np.asarray(values, float)
        return np.where(np.asarray(carry.lost_at) < 0, each, np.nan)

    advance = simulate.advance(program, built.tasks, keys, hyper, plan.length)
    params = init_program(built.init)
    begin = lambda: members(first(params(seeds), built.tasks, keys, hyper))
    execution = Execution(begin, side_by_side(advance))
    cost = plan.cost(jax.tree.map(lambda leaf: leaf[0], hyper), keys)
    name = f"{config.method} x {len(settings)}"
    return Job(name, "", plan, hyper, execution, scored, cost)
