"""What a run computes, stretch by stretch: one training, or many side by side.

A job's carry is all that going on needs; a session saves it and takes it up again.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import Schedule, constant, cosine, decay_at
from moml.config.build import Built, build
from moml.config.config import Config, method_options, step_sizes
from moml.config.table_tasks import Held
from moml.errors import Diverged
from moml.runtime import simulate
from moml.runtime.account import Cost, spending
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
from moml.training.evaluate import scores_on
from moml.training.fit import all_finite, first_bad
from moml.training.sweep import surviving
from moml.types import Adapt, Hyper, Key, Meta, Params, Tasks

Row = dict[str, Any]
Spending = Callable[[int, int], Cost]
SCORED = 1001  # seed of the samples that scores use


class Job(NamedTuple):
    """A run to be done: `stretch` gives the next carry and the values of a line of metrics."""

    name: str
    method: Method
    metric: str
    higher: bool  # whether a higher score is a better one
    steps: int  # calls of the method's `step` in all
    length: int  # calls in one stretch
    first: Callable[[], Any]
    stretch: Callable[[Any, int, int], tuple[Any, Row]]  # carry, start, size; raises Diverged
    score: Callable[[Any], Any]  # carry -> error on unseen tasks, of each member
    samples: Callable[[int], int]  # drawn in so many steps
    cost: Spending | None = None  # of the rounds from one on, so many, where there are rounds
    place: Any = None  # a `moml.runs.mesh_job.Place`, where a carry lies on many devices
    disk: Any = None  # a `moml.training.disk.Disk`, where memories live on disk


class Members(NamedTuple):
    """The carry of a sweep: each member's state, its last finite model, the step it was lost at."""

    state: Any
    good: Meta
    lost_at: Any  # int32 [members], -1 where a member goes on


class Plan(NamedTuple):
    """What one run and many have in common."""

    built: Built
    method: Method
    run: simulate.Stretch
    score: Callable[[Meta, Hyper], Any]
    steps: int
    length: int

    def samples(self, steps: int) -> int:
        """Samples drawn in so many steps."""
        each = simulate.samples_per_step(self.method.algorithm.needs)
        return (steps * each + samples_to_fill(self.method)) * self.built.tasks.ways

    def cost(self, hyper: Hyper, keys: Key) -> Spending | None:
        """What the rounds of a run, or of many, cost; None where there are none."""
        first = lambda hyper: self.method.algorithm.init(self.built.init(init_key(0)), hyper)
        meta = jax.eval_shape(first, hyper).meta
        return spending(self.method, meta, self.built.tasks, keys)


def plan_of(config: Config, held: Held = lambda task: True) -> Plan:
    """Compose a configuration's method for its problem, for the tasks that are `held` here."""
    built = build(config, held)
    options = method_options(config, built.features)
    options.pop("iterations", None)
    chosen = compose(config.method, built.loss, built.tasks, options, config.iterations)
    check_loss(built.loss, check_params(built.init(init_key(0))), built.tasks, chosen.k)
    once = chosen.algorithm.iterations
    schedule = schedule_of(config)
    each = each_of(config, built, built.unseen, chosen.adaptation(config.test_steps))
    return Plan(
        built,
        chosen,
        simulate.stretch(chosen.algorithm, built.tasks, schedule),
        lambda meta, hyper: jnp.mean(each(meta, hyper)),
        math.ceil(config.iterations / once),
        max(1, config.log_every // once),
    )


def each_of(config: Config, built: Built, tasks: Tasks, adapt: Adapt) -> Callable[..., Any]:
    """The score of each of some tasks, as the configuration has it: (meta, hyper) -> [tasks]."""
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
    params: Params | None = None,
    program: Any = None,
) -> Job:
    """One training: it stops where it diverges. `plan` is the configuration's, if it is there.

    It starts from `params`, or from the seed's own. `program` runs a stretch in its own way.
    """
    plan = plan_of(config) if plan is None else plan
    params = plan.built.init(init_key(config.seed)) if params is None else params
    hyper = hyper_of(plan.method, params, sizes_of(config))
    key = run_key(config.seed)
    program = simulate.compiled(plan.run) if program is None else program
    finite, score = jax.jit(all_finite), jax.jit(plan.score)

    def first() -> Any:
        return jax.jit(start(plan.method, plan.built.tasks))(params, key, hyper)

    def stretch(state: Any, begin: int, size: int) -> tuple[Any, Row]:
        state, info = program(state, key, begin, hyper, size)
        losses = np.asarray(info.loss)
        if not (np.isfinite(losses).all() and finite(state.meta)):
            raise Diverged(
                f"{config.method} (seed {config.seed}) diverged at step {begin + first_bad(losses)}"
                f" of {plan.steps} ({described(hyper)}): loss or parameters are not finite"
            )
        return state, {"loss": losses.mean(), "norm": np.asarray(info.norm).mean()}

    scored = lambda state: score(state.meta, hyper)
    return Job(
        config.method, plan.method, plan.built.metric, plan.built.higher, plan.steps, plan.length,
        first, stretch, scored, plan.samples, plan.cost(hyper, key),
    )  # fmt: skip


def many(config: Config, settings: list[Row], plan: Plan, program: Any) -> Job:
    """All settings side by side; a member that diverges is lost, the others go on."""
    example = plan.built.init(init_key(0))
    given = [
        sizes_of(config) | {name: row[name] for name in row if name != "seed"} for row in settings
    ]
    rows = [hyper_of(plan.method, example, sizes) for sizes in given]
    hyper = jax.tree.map(lambda *values: jnp.stack(values), *rows)
    numbers = jnp.asarray([row["seed"] for row in settings])
    keys = jax.vmap(run_key)(numbers)
    score = jax.jit(jax.vmap(plan.score))

    def first() -> Members:
        begin = start(plan.method, plan.built.tasks)
        one = lambda seed, key, hyper: begin(plan.built.init(init_key(seed)), key, hyper)
        state = jax.jit(jax.vmap(one))(numbers, keys, hyper)
        good = jax.tree.map(jnp.copy, state.meta)
        return Members(state, good, jnp.full(len(settings), -1, jnp.int32))

    def stretch(carry: Members, begin: int, size: int) -> tuple[Members, Row]:
        state, info = program(carry.state, keys, begin, hyper, size)
        losses = np.asarray(info.loss)
        good, lost_at = surviving(state.meta, losses, carry.good, np.asarray(carry.lost_at), begin)
        alive = lost_at < 0
        shown = lambda values: np.where(alive, np.asarray(values).mean(axis=1), np.nan)
        row = {"loss": shown(losses), "norm": shown(info.norm)}
        return Members(state, good, jnp.asarray(lost_at)), row

    def scored(carry: Members) -> np.ndarray:
        return np.where(np.asarray(carry.lost_at) < 0, score(carry.good, hyper), np.nan)

    name = f"{config.method} x {len(settings)}"
    return Job(
        name, plan.method, plan.built.metric, plan.built.higher, plan.steps, plan.length, first,
        stretch, scored, plan.samples, plan.cost(rows[0], keys),
    )  # fmt: skip
