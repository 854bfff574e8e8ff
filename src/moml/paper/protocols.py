"""The protocols of the sine and the one-shot table, each a named set of switches, and what they do.

The released code's meta-gradient is first-order and runs through the moving average, so that a
memory's gradient is scaled: by beta for v1, NASA and LocalMOML (there we fold beta into eta), and
for v2, whose idle memories stay in the graph, by 1 - (1 - beta)^(steps since the last visit). Tasks
are drawn with replacement, one after the other.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from moml.algorithms.method import Method
from moml.algorithms.parts.memory import Lazy, take
from moml.algorithms.parts.personal import personal_step
from moml.algorithms.parts.task_map import mean, norm
from moml.algorithms.single.engine import State, fill
from moml.algorithms.single.spider import Cycle, spider_steps
from moml.types import (
    Adapt,
    Algorithm,
    Hyper,
    Info,
    Key,
    Loss,
    Memory,
    Params,
    Samples,
    SampleSpec,
    Task,
    TaskBatch,
    Tasks,
)


@dataclass(frozen=True)
class Protocol:
    """How a table is made. Every switch off and `exact` on is `strict`, our own protocol."""

    exact: bool = True  # curvature of the inner gradient; else first-order
    independent_hessian: bool = False  # S2 is drawn independently of S1
    two_batches: bool = False  # v2's separate task batch for the memories
    through_average: bool = False  # the gradient runs through the moving average: scaled by beta
    leak: bool = False  # v2's idle memories stay in the graph
    uncoupled: bool = False  # Spider's two points use different samples
    replacement: bool = False  # tasks drawn with replacement, one by one (not Reptile's)
    eager: bool = False  # all memories filled before training
    shared_init: bool = False  # every seed starts from the one recorded network
    five_waves: bool = False  # scored on five fixed waves, the support among the scored points
    repeats: bool = False  # one-shot: samples drawn independently, a query may be in the support
    keeps_learning: bool = False  # one-shot: no reset between the episodes of a test task

    def options(self, name: str) -> dict[str, object]:
        """Options of the method `name` that these switches set."""
        if name in ("fo-maml", "moml", "reptile", "protonet"):
            return {}
        options: dict[str, object] = {
            "curvature": "exact" if self.exact else "first-order",
            "independent_hessian": self.independent_hessian,
        }
        if name in ("moml-v1", "moml-v2", "nasa"):
            options["eager"] = self.eager
        return options | ({"two_batches": self.two_batches} if name == "moml-v2" else {})


_RELEASED = Protocol(
    exact=False, through_average=True, leak=True, uncoupled=True, replacement=True, eager=True,
    shared_init=True, five_waves=True, repeats=True, keeps_learning=True,
)  # fmt: skip
PROTOCOLS = {
    "released": _RELEASED,
    "released-fresh": replace(_RELEASED, shared_init=False),
    "paper": Protocol(independent_hessian=True, two_batches=True),
    "strict": Protocol(),
}


class Steps(NamedTuple):
    """The step sizes of one cell."""

    eta: float
    beta: float = 1.0
    gamma: float = 1.0


Id = Int[Array, ""]
Weight = Callable[[PyTree, Id], Float[Array, ""]]  # store, id -> the scale of this task's gradient


def leak(store: Lazy, task: Id) -> Float[Array, ""]:
    """How much of v2's memory still depends on w in the graph: 1 - (1 - beta)^(steps since)."""
    then = take(store.touched, task[None])
    return 1 - jnp.exp((store.now.high - then.high) + (store.now.low - then.low))[0]


def in_turn(
    loss: Loss, adapt: Adapt, memory: Memory, need: SampleSpec, *, weight: Weight | None = None,
    once: bool,
) -> Algorithm:  # fmt: skip
    """A step that takes its tasks one after the other, so that an id may occur twice.

    Then its memory moves twice (v1), or the second visit is skipped (`once`, v2); the sum of
    gradients is divided by B in both cases.
    """
    visit_one = personal_step(loss, adapt, memory)

    def init(params: Params, hyper: Hyper) -> State:
        meta = adapt.init(params, hyper)
        return State(meta, memory.init(adapt.start(meta)), ())

    def step(state: State, visit: TaskBatch, hyper: Hyper) -> tuple[State, Info]:
        meta = state.meta
        earlier = jnp.tril(visit.ids[:, None] == visit.ids[None, :], -1).any(axis=1)

        def turn(store: PyTree, at: tuple[Id, Task, Array]) -> tuple[PyTree, PyTree]:
            task, samples, again = at
            row = jax.tree.map(lambda x: x[0], memory.read(store, task[None]))
            done = visit_one(meta, row, samples, hyper)
            scale = jnp.where(once & again, 0.0, 1.0)
            scale *= 1.0 if weight is None else weight(store, task)
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
        if name in ("moml-v1", "moml-v2"):
            v2 = name == "moml-v2"
            weight = leak if v2 and p.leak else None
            algorithm = in_turn(loss, adapt, chosen.memory, needs, weight=weight, once=v2)
    return chosen._replace(algorithm=algorithm)


def with_repeats(tasks: Tasks) -> Tasks:
    """The same tasks, each sample of a visit drawn independently, so that one may occur twice."""

    def draw(index: PyTree, key: Key, ids: Int[Array, " tasks"], size: int) -> Samples:
        one = lambda key: tasks.draw_from(index, key, ids, 1)
        each = jax.vmap(one, out_axes=1)(jax.random.split(key, size))
        return jax.tree.map(lambda x: x[:, :, 0], each)

    return replace(tasks, draw_from=draw)


def halves(task: Task) -> tuple[Task, Task]:
    """BSpiderBoost's two points use different samples of the same tasks: half of them each."""
    half = lambda second: jax.tree.map(lambda x: jnp.split(x, 2, axis=1)[second], task)
    return half(0), half(1)
