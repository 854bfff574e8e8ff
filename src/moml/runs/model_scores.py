"""What the report computes for a run's newest model: scores by shots, clients, fits, memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from moml.algorithms.method import Method
from moml.algorithms.parts.memory import parted
from moml.algorithms.parts.task_map import in_batches
from moml.algorithms.single.diagnostics import samples_of, tracking_error
from moml.config.config import Config
from moml.config.problems import Episodes, Sine
from moml.config.problems.problem import UNSEEN
from moml.errors import MomlError
from moml.models import mlp
from moml.runs import stored_scores
from moml.runs.job import SCORED, Plan, each_of, plan_of
from moml.runs.runs import load, stores_of
from moml.runs.score import asked, client_rows, scored_by_client
from moml.tasks.sine import unseen_waves
from moml.training.evaluate import levels, unadapted
from moml.training.fit import Learner
from moml.training.personal import parts_that_keep
from moml.types import Hyper, Meta, Record, Samples, State, Tasks

UNSEEN_TASKS = "unseen tasks"
TOOK_PART, NEVER = "took part", "never took part"
DRAWN, DRAWN_IMAGES = 100, 10  # samples for v of an endless task; images of a class
TRACKED, AT_ONCE = 1000, 64  # tasks, at most; side by side
Values = Float[np.ndarray, " n"]


class Level(NamedTuple):
    """Every task's score after so many shots; 0: without adapting."""

    who: str
    shots: int
    each: Values


class Fit(NamedTuple):
    """A wave, the model before and after it adapts to a few samples of it."""

    rank: str
    error: float
    x: Values
    wave: Values
    before: Values
    after: Values
    samples: list[tuple[float, float]]


class Tracked(NamedTuple):
    """Of each task with a memory: |u - v|^2, and |w - v|^2."""

    memory: Values
    start: Values
    tasks: int
    exact: bool  # v from all data of a task, not from drawn samples


class Looked(NamedTuple):
    """What was computed; `wrong` says why something was not."""

    levels: list[Level] = []
    clients: list[Record] = []  # result rows, see `client_scores.rows_of`
    step: int | None = None  # of the checkpoint that stored scores of clients are of
    fits: list[Fit] = []
    tracked: Tracked | None = None
    alone: float | None = None
    wrong: str | None = None


def _shots(config: Config) -> list[int]:
    """Numbers of shots to score with, up to those of the run; of episodes 5 as well."""
    if not isinstance(config.problem, Episodes):
        return levels(config.shots)
    room = (config.problem.least or 0) - config.problem.queries
    return sorted({0, config.shots, *([5] if room >= 5 else [])})


def pieces(config: Config) -> int:
    """How many pieces of work `look` does."""
    return 4 + len(_shots(config))


def stored_look(folder: Path) -> Looked:
    """What is stored of a run: the scores of its clients by `moml score`."""
    found = stored_scores.stored(folder)
    return Looked() if found is None else Looked(clients=found.rows, step=found.step)


def look(folder: Path, config: Config, done: Callable[[], None]) -> Looked:
    """All that can be computed of a run's newest checkpoint; `done` is called after each piece."""
    found = Looked(levels=[])
    try:
        learner, plan = load(folder), plan_of(config)
        done()
        for shots in _shots(config):
            found.levels.extend(_levels(config, plan, learner, shots))
            done()
        if (by := scored_by_client(config, plan)) is not None:
            stores = stores_of(folder, plan, learner)
            rows = client_rows(config, plan, learner, by, stores, [config.shots])
            found = found._replace(clients=rows)
        found = found._replace(fits=_fits(config, plan, learner, found.levels))
        done()
        found = found._replace(tracked=_tracked(config, plan, learner))
        done()
        found = found._replace(alone=_alone(config, learner))
        done()
    except MomlError as error:
        return found._replace(wrong=str(error))
    return found


def _levels(config: Config, plan: Plan, learner: Learner, shots: int) -> list[Level]:
    config = replace(config, shots=shots or config.shots)
    adaptation = plan.method.adaptation if shots else unadapted(plan.method.adaptation)
    named: dict[str, Tasks | None] = {UNSEEN_TASKS: plan.built.unseen}
    if config.problem.by_client:
        named = {TOOK_PART: plan.built.unseen, NEVER: plan.built.strangers}
    found = []
    for who, tasks in named.items():
        if tasks is not None:
            each = each_of(config, plan.built, tasks, adaptation, learner.meta, learner.hyper)
            tidy = np.nan_to_num(np.asarray(each, float), nan=np.inf, posinf=np.inf)
            found.append(Level(who, shots, tidy))
    return found


def _alone(config: Config, learner: Learner) -> float | None:
    """Accuracy with one query at a time, if the run's own score is another."""
    p = config.problem
    if not isinstance(p, Episodes) or p.alone or p.model != "conv4" or p.norm != "batch":
        return None
    other = plan_of(asked(config, config.shots, None, None, alone=True))
    return float(other.score(learner.meta, learner.hyper))


def _fits(config: Config, plan: Plan, learner: Learner, found: Sequence[Level]) -> list[Fit]:
    """Waves that are easy, middling and hard for the model, of those that it is scored on."""
    p = config.problem
    if not isinstance(p, Sine):
        return []
    adapt = plan.method.adaptation(config.test_steps)
    predict, x = mlp(1, *p.hidden, 1).predict, jnp.linspace(-5, 5, 101)
    amplitude, phase = unseen_waves(jax.random.key(UNSEEN), config.test_tasks)
    drawn = config.shots + (plan.built.queries or 0)

    @jax.jit
    def one(
        tasks: Tasks, meta: Meta, hyper: Hyper, i: Int[Array, ""]
    ) -> tuple[Samples, tuple[Array, ...]]:
        key = jax.random.fold_in(jax.random.key(SCORED), i)  # the samples of the score itself
        samples = tasks.fetch(i[None], tasks.draw(key, i[None], drawn))
        support = jax.tree.map(lambda leaf: leaf[0, : config.shots], samples)
        start = adapt.start(meta), adapt.apply(meta, support, hyper)
        models = [adapt.merge(meta, personal) for personal in start]
        answers = [predict(model, x[:, None])[:, 0] for model in models]
        return support, (amplitude[i] * jnp.sin(phase[i] + x), *answers)

    errors = next(level.each for level in found if level.shots == config.shots)
    order = np.argsort(errors)
    fits = []
    for rank, share in {"easy": 0.1, "middling": 0.5, "hard": 0.9}.items():
        i = order[int(share * (len(order) - 1))]
        support, lines = one(plan.built.unseen, learner.meta, learner.hyper, jnp.asarray(i))
        wave, before, after = (np.asarray(line) for line in lines)
        samples = list(zip(support.x[:, 0].tolist(), support.y[:, 0].tolist(), strict=True))
        fits.append(Fit(rank, float(errors[i]), np.asarray(x), wave, before, after, samples))
    return fits


def _remembers(config: Config, method: Method) -> bool:
    """Whether rows are memories of adapted models: clients may keep other things."""
    return method.algorithm.rounds is None or (
        bool(config.option("carried")) and parts_that_keep(method) is None
    )


def _tracked(config: Config, plan: Plan, learner: Learner) -> Tracked | None:
    """How far each task's memory is from where the model adapts to, beside how far w is."""
    store, tasks, method = getattr(learner.state, "memory", ()), plan.built.tasks, plan.method
    rows = jax.tree.leaves(parted(store)[1])  # those on disk are in no checkpoint
    if not rows or tasks.n is None or not _remembers(config, method):
        return None
    exact = tasks.full_from is not None
    size = DRAWN_IMAGES if tasks.ways > 1 else DRAWN
    adapt = method.adaptation(method.inner_steps)

    @jax.jit
    def both(tasks: Tasks, store: State, meta: Meta, hyper: Hyper) -> list[Array]:
        samples = samples_of(tasks) if exact else samples_of(tasks, jax.random.key(SCORED), size)
        w = jax.tree.map(lambda leaf: leaf[None], adapt.start(meta))
        still = method.memory._replace(recall=lambda store, ids: (w, jnp.ones_like(ids, bool)))
        errors = [tracking_error(adapt, memory, samples) for memory in (method.memory, still)]
        ids = jnp.arange(min(tasks.n or 0, TRACKED))
        one = lambda i: [e(store, meta, i[None], hyper) for e in errors]
        return in_batches(one, ids, AT_ONCE)

    kept, start = map(np.asarray, both(tasks, store, learner.meta, learner.hyper))
    known = np.isfinite(kept)
    return Tracked(kept[known], start[known], tasks.n, exact)
