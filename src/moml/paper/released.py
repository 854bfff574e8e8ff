"""What the authors' released code computes for sine, where it is not one of our methods.

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

from moml.algorithms.memory import Lazy, take
from moml.algorithms.moml import State, fill, mean, norm
from moml.algorithms.personal import personal_step
from moml.types import Adapt, Algorithm, Batch, Hyper, Info, Loss, Memory, Need, Params, Task, Visit

Weight = Callable[[Any, Any], Any]  # store, id -> the scale of this task's gradient


def one(store: Any, task: Any) -> Any:
    """No scale."""
    return jnp.ones(())


def leak(store: Lazy, task: Any) -> Any:
    """How much of v2's memory still hangs on w in the graph: 1 - (1 - beta)^(steps since)."""
    then = take(store.touched, task[None])
    return 1 - jnp.exp((store.now.high - then.high) + (store.now.low - then.low))[0]


def in_turn(
    loss: Loss, adapt: Adapt, memory: Memory, need: Need, *, weight: Weight = one, once: bool
) -> Algorithm:
    """A step that takes its tasks one after the other, so that an id may come twice.

    Then its memory moves twice (v1), or it is passed over (`once`, v2); the sum of gradients is
    divided by B all the same.
    """
    visit_one = personal_step(loss, adapt, memory)

    def init(params: Params, hyper: Hyper) -> State:
        meta = adapt.init(params, hyper)
        return State(meta, memory.init(adapt.start(meta)), ())

    def step(state: State, visit: Visit, hyper: Hyper) -> tuple[State, Info]:
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
