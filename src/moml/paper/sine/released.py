"""What the authors' released code computes where it is not one of our methods.

Its meta-gradient is first-order and runs through the moving average, so that a memory's gradient is
scaled: by beta for v1, NASA and LocalMOML (there we fold beta into eta), and for v2, whose idle
memories stay in the graph, by 1 - (1 - beta)^(steps since the last visit). Tasks are drawn with
replacement, one after the other.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from moml.algorithms.method import Method
from moml.algorithms.parts.memory import Lazy, take
from moml.algorithms.parts.personal import personal_step
from moml.algorithms.parts.task_map import mean, norm
from moml.algorithms.single.engine import State, fill
from moml.algorithms.single.spider import Cycle, spider_steps
from moml.paper.sine.protocols import Protocol, Steps
from moml.types import (
    Adapt,
    Algorithm,
    Batch,
    Hyper,
    Info,
    Key,
    Loss,
    Memory,
    Params,
    SampleSpec,
    Task,
    TaskBatch,
    Tasks,
)

Weight = Callable[[Any, Any], Any]  # store, id -> the scale of this task's gradient


def one(store: Any, task: Any) -> Any:
    """No scale."""
    return jnp.ones(())


def leak(store: Lazy, task: Any) -> Any:
    """How much of v2's memory still hangs on w in the graph: 1 - (1 - beta)^(steps since)."""
    then = take(store.touched, task[None])
    return 1 - jnp.exp((store.now.high - then.high) + (store.now.low - then.low))[0]


def in_turn(
    loss: Loss, adapt: Adapt, memory: Memory, need: SampleSpec, *, weight: Weight = one, once: bool
) -> Algorithm:
    """A step that takes its tasks one after the other, so that an id may come twice.

    Then its memory moves twice (v1), or it is passed over (`once`, v2); the sum of gradients is
    divided by B all the same.
    """
    visit_one = personal_step(loss, adapt, memory)

    def init(params: Params, hyper: Hyper) -> State:
        meta = adapt.init(params, hyper)
        return State(meta, memory.init(adapt.start(meta)), ())

    def step(state: State, visit: TaskBatch, hyper: Hyper) -> tuple[State, Info]:
        meta = state.meta
        earlier = jnp.tril(visit.ids[:, None] == visit.ids[None, :], -1).any(axis=1)

        def turn(store: Any, at: Any) -> Any:
            task, samples, again = at
            row = jax.tree.map(lambda x: x[0], memory.read(store, task[None]))
            done = visit_one(meta, row, samples, hyper)
            scale = weight(store, task) * jnp.where(once & again, 0.0, 1.0)
            written = memory.write(store, task[None], jax.tree.map(lambda x: x[None], done.u))
            store = jax.tree.map(lambda new, old: jnp.where(once & again, old, new), written, store)
            return store, (optax.tree.scale(scale, done.delta), done.loss)

        store = memory.tick(state.memory, adapt.start(meta), hyper)
        store, (deltas, losses) = jax.lax.scan(turn, store, (visit.ids, visit.task, earlier))
        delta = mean(deltas)
        meta = jax.tree.map(lambda w, d: w - hyper.eta * d, meta, delta)
        return State(meta, store, ()), Info(jnp.mean(losses), norm(delta))

    return Algorithm(init, step, need, fill=fill(adapt, memory))


def with_quirks(chosen: Method, name: str, loss: Loss, p: Protocol) -> Method:
    """A method as the released code has it, where that is not a matter of step sizes."""
    adapt, needs, k = chosen.adaptation(1), chosen.algorithm.needs, chosen.k
    algorithm = chosen.algorithm
    if name == "bspiderboost" and p.uncoupled:
        double = needs.small._replace(support=2 * k, query=2 * k)
        algorithm = spider_steps(loss, adapt, Cycle(needs.large, double), halves)
    if p.replacement and name not in ("reptile", "nasa"):
        is_need = lambda need: isinstance(need, SampleSpec)
        more = lambda need: need._replace(replace=True)
        needs = jax.tree.map(more, algorithm.needs, is_leaf=is_need)
        algorithm = algorithm._replace(needs=needs)
        if name == "moml-v1":
            algorithm = in_turn(loss, adapt, chosen.memory, needs, once=False)
        if name == "moml-v2":
            weight = leak if p.leak else one
            algorithm = in_turn(loss, adapt, chosen.memory, needs, weight=weight, once=True)
    return chosen._replace(algorithm=algorithm)


def eta_of(name: str, steps: Steps, p: Protocol) -> float:
    """The outer step size: times beta where the gradient runs through v1's average."""
    scaled = p.through_average and name in ("moml-v1", "nasa", "localmoml")
    return steps.eta * (steps.beta if scaled else 1.0)


def with_repeats(tasks: Tasks) -> Tasks:
    """The same tasks, each sample of a visit drawn by itself: one may come twice."""

    def draw(key: Key, ids: Any, size: int) -> Any:
        each = jax.vmap(lambda key: tasks.draw(key, ids, 1), out_axes=1)(
            jax.random.split(key, size)
        )
        return jax.tree.map(lambda x: x[:, :, 0], each)

    return tasks._replace(draw=draw)


def halves(task: Task) -> tuple[Task, Task]:
    """BSpiderBoost's two points see other samples of the same tasks: half of them each."""
    half = lambda second: jax.tree.map(lambda x: jnp.split(x, 2, axis=1)[second], task)
    return half(0), half(1)


def five_waves() -> tuple[Batch, Batch]:
    """The released test: five fixed waves, 10 points to adapt on that are among the 100 scored."""
    waves = [np.random.RandomState(i) for i in range(5)]
    drawn = np.array([(r.uniform(1, 5), r.uniform(np.pi / 5, np.pi)) for r in waves])
    x = np.random.RandomState(2021).uniform(-5, 5, 100)
    y = drawn[:, :1] * np.sin(drawn[:, 1:] + x)
    scored = Batch(np.broadcast_to(x, y.shape)[..., None], y[..., None])
    whole = Batch(*(jnp.asarray(part, float) for part in scored[:2]))
    return Batch(whole.x[:, :10], whole.y[:, :10]), whole
