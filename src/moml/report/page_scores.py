"""What the page computes of a run's newest model: scores by shots, clients, fits, the memory."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moml.algorithms.diagnostics import samples_of, tracking_error
from moml.errors import MomlError
from moml.models import mlp
from moml.report.page_runs import Trained
from moml.run.client_scores import Group, groups_of
from moml.run.job import SCORED, Plan, each_of, plan_of
from moml.run.problem import UNSEEN
from moml.run.problems import Clients, Episodes, Sine
from moml.run.runs import load
from moml.run.score import asked
from moml.run.table_score import levels
from moml.run.train import Learner
from moml.tasks.sine import unseen_waves
from moml.types import Tasks

TOOK_PART, UNSEEN_CLIENTS = "clients that took part", "clients that never took part"
DRAWN, DRAWN_IMAGES = 100, 10  # samples for v of an endless task; images of a class
TRACKED = 1000  # tasks, at most
OWN = "ditto"  # what its clients keep is a model of their own, no memory of one
Values = Float[np.ndarray, " n"]


class Level(NamedTuple):
    """Every task's score after so many shots; 0 is the model as it comes."""

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
    groups: list[Group] = []
    fits: list[Fit] = []
    tracked: Tracked | None = None
    alone: float | None = None
    wrong: str | None = None


def pieces(run: Trained) -> int:
    """How many pieces of work `look` does."""
    return 5 + len(_shots(run.config))


def _shots(config: Any) -> list[int]:
    """Numbers of shots to score with, up to those of the run; of episodes 5 as well."""
    if not isinstance(config.problem, Episodes):
        return levels(config.shots)
    room = (config.problem.least or 0) - config.problem.queries
    return sorted({0, config.shots, *([5] if room >= 5 else [])})


def look(run: Trained, done: Callable[[], None]) -> Looked:
    """All that can be computed of a run's newest checkpoint; `done` is called after each piece."""
    found: dict[str, Any] = {}
    try:
        learner, plan = load(run.folder), plan_of(run.config)
        done()
        found["levels"] = []
        for shots in _shots(run.config):
            found["levels"] += _levels(run, plan, learner, shots)
            done()
        parts = {"groups": _clients, "fits": _fits, "tracked": _tracked, "alone": _alone}
        for name, part in parts.items():
            found[name] = part(run, plan, learner)
            done()
    except MomlError as error:
        return Looked(**found, wrong=str(error))
    return Looked(**found)


def _levels(run: Trained, plan: Plan, learner: Learner, shots: int) -> list[Level]:
    config = replace(run.config, shots=shots or run.config.shots)
    adapt = plan.method.adaptation(config.test_steps)
    if shots == 0:
        start = adapt.start
        adapt = adapt._replace(apply=lambda meta, support, hyper: start(meta))
    named: dict[str, Tasks | None] = {"unseen tasks": plan.built.unseen}
    if isinstance(config.problem, Clients):
        named = {TOOK_PART: plan.built.unseen, UNSEEN_CLIENTS: plan.built.strangers}
    return [
        Level(who, shots, np.asarray(_each(config, plan, tasks, adapt, learner), float))
        for who, tasks in named.items()
        if tasks is not None
    ]


def _each(config: Any, plan: Plan, tasks: Any, adapt: Any, learner: Learner) -> Any:
    return jax.jit(each_of(config, plan.built, tasks, adapt))(learner.meta, learner.hyper)


def _clients(run: Trained, plan: Plan, learner: Learner) -> list[Group]:
    return groups_of(run.config, plan, learner) if isinstance(run.config.problem, Clients) else []


def _alone(run: Trained, plan: Plan, learner: Learner) -> float | None:
    """Accuracy where an answer depends on no other query, if that is not what was asked."""
    p, config = run.config.problem, run.config
    if not isinstance(p, Episodes) or p.alone or p.model != "conv4" or p.norm != "batch":
        return None
    other = plan_of(asked(config, config.shots, None, None, alone=True))
    return float(jax.jit(other.score)(learner.meta, learner.hyper))


def _fits(run: Trained, plan: Plan, learner: Learner) -> list[Fit]:
    """Waves that are easy, middling and hard for the model, of those that it is scored on."""
    config, p = run.config, run.config.problem
    if not isinstance(p, Sine):
        return []
    adapt, tasks = plan.method.adaptation(config.test_steps), plan.built.unseen
    errors = np.asarray(_each(config, plan, tasks, adapt, learner))
    order = np.argsort(errors)
    amplitude, phase = unseen_waves(jax.random.key(UNSEEN), config.test_tasks)
    x = jnp.linspace(-5, 5, 101)
    predict = mlp(1, *p.hidden, 1).predict
    fits = []
    for rank, share in {"easy": 0.1, "middling": 0.5, "hard": 0.9}.items():
        i = jnp.asarray(order[int(share * (len(order) - 1))], jnp.int32)
        key = jax.random.fold_in(jax.random.key(SCORED), i)  # the samples of the score itself
        drawn = tasks.draw(key, i[None], config.shots + (plan.built.queries or 0))
        support = jax.tree.map(lambda leaf: leaf[0, : config.shots], tasks.fetch(i[None], drawn))
        models = learner.params, learner.adapt(support, config.test_steps)
        before, after = (np.asarray(predict(model, x[:, None]))[:, 0] for model in models)
        samples = [
            (float(a), float(b)) for a, b in zip(support.x[:, 0], support.y[:, 0], strict=True)
        ]
        wave = np.asarray(amplitude[i] * jnp.sin(phase[i] + x))
        fits.append(Fit(rank, float(errors[i]), np.asarray(x), wave, before, after, samples))
    return fits


def _tracked(run: Trained, plan: Plan, learner: Learner) -> Tracked | None:
    """How far each task's memory is from where the model adapts to, beside how far w is."""
    store, tasks, method = getattr(learner.state, "memory", ()), plan.built.tasks, plan.method
    if not jax.tree.leaves(store) or tasks.n is None or run.config.method == OWN:
        return None
    exact = tasks.full is not None
    size = DRAWN_IMAGES if tasks.ways > 1 else DRAWN
    samples = samples_of(tasks) if exact else samples_of(tasks, jax.random.key(SCORED), size)
    adapt = method.adaptation(method.options.inner_steps)
    w = jax.tree.map(lambda leaf: leaf[None], adapt.start(learner.meta))
    still = method.memory._replace(recall=lambda store, ids: (w, jnp.ones_like(ids, bool)))
    ids = jnp.arange(min(tasks.n, TRACKED))

    def each(memory: Any) -> Values:
        error = tracking_error(adapt, memory, samples)
        one = lambda i: error(store, learner.meta, i[None], learner.hyper)
        return np.asarray(jax.jit(lambda: jax.lax.map(one, ids, batch_size=min(64, len(ids))))())

    kept, start = each(method.memory), each(still)
    known = np.isfinite(kept)
    return Tracked(kept[known], start[known], tasks.n, exact)
