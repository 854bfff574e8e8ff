"""The single-node methods: personal steps of B tasks side by side, their mean, an outer rule."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from moml.algorithms.parts.personal import personal_step, pull_back, query
from moml.algorithms.parts.task_map import Each, over, side_by_side
from moml.types import Adapt, Algorithm, Hyper, Info, Loss, Memory, Meta, Need, Params, Visit


class State(NamedTuple):
    """What the next step needs."""

    meta: Meta
    memory: Any
    outer: Any


class TwoBatches(NamedTuple):
    """v2's batches in the paper: B' moves the memories, B gives the meta-gradient."""

    memory: Any
    meta: Any


class Outcome(NamedTuple):
    """What is summed over the tasks of a step."""

    delta: Meta
    loss: Float[Array, ""]


def _algorithm(adapt: Adapt, memory: Memory, outer: Any, step: Any, needs: Any) -> Algorithm:
    def init(params: Params, hyper: Hyper) -> State:
        meta = adapt.init(params, hyper)
        return State(meta, memory.init(adapt.start(meta)), outer.init(meta))

    rows = State(meta=False, memory=memory.rows, outer=False)
    return Algorithm(init, step, needs, fill=fill(adapt, memory), rows=rows)


def outer_step(outer: Any, meta: Meta, state: Any, delta: Meta, hyper: Hyper) -> tuple[Meta, Any]:
    """w <- w - eta * direction(Delta)."""
    update = optax.with_extra_args_support(outer).update
    direction, state = update(delta, state, meta, gamma=hyper.gamma)
    return jax.tree.map(lambda w, d: w - hyper.eta * d, meta, direction), state


def _finish(
    outer: Any, state: State, memory: Any, total: Outcome, count: int, hyper: Hyper
) -> tuple[State, Info]:
    delta, loss = over(count, total)
    meta, outer_state = outer_step(outer, state.meta, state.outer, delta, hyper)
    return State(meta, memory, outer_state), Info(loss, norm(delta))


def mean(rows: Any) -> Any:
    """The mean over tasks, leaf by leaf."""
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), rows)


def norm(tree: Any) -> Any:
    """The Euclidean norm, as products of vectors: XLA makes many small sums of the other form."""
    return jnp.sqrt(optax.tree.vdot(tree, tree))


def single_node(
    loss: Loss, adapt: Adapt, memory: Memory, outer: Any, need: Need, visiting: Any = personal_step
) -> Algorithm:
    """One task batch an iteration: MAML, MOML v1, v2 as released, SCGD, NASA, and ours."""
    visit_one = visiting(loss, adapt, memory)

    def step(
        state: State, visit: Visit, hyper: Hyper, each: Each = side_by_side
    ) -> tuple[State, Info]:
        def one(row: Any, visit: Visit) -> tuple[Outcome, Any]:
            done = visit_one(state.meta, row, visit.task, hyper)
            return Outcome(done.delta, done.loss), done.u

        store = memory.tick(state.memory, adapt.start(state.meta), hyper)
        total, store = each(one, memory, store, visit)
        return _finish(outer, state, store, total, len(visit.ids), hyper)

    return _algorithm(adapt, memory, outer, step, need)


def two_batches(
    loss: Loss, adapt: Adapt, memory: Memory, outer: Any, needs: TwoBatches
) -> Algorithm:
    """MOML v2 with the paper's two independent task batches (Algorithm 2)."""

    def step(
        state: State, visits: TwoBatches, hyper: Hyper, each: Each = side_by_side
    ) -> tuple[State, Info]:
        w = adapt.start(state.meta)

        def remember(row: Any, visit: Visit) -> tuple[tuple[()], Any]:
            v = adapt.apply(state.meta, visit.task.support, hyper)
            return (), memory.mix(row, w, v, hyper)

        def meta_gradient(u: Any, visit: Visit) -> tuple[Outcome, tuple[()]]:
            _, pull = pull_back(adapt, state.meta, visit.task.hessian, hyper)
            done = query(loss, adapt, state.meta, u, pull, visit.task.query)
            return Outcome(done.delta, done.loss), ()

        store = memory.tick(state.memory, w, hyper)
        _, store = each(remember, memory, store, visits.memory)
        asked = memory._replace(write=lambda store, *_: store)
        total, _ = each(meta_gradient, asked, store, visits.meta)
        return _finish(outer, state, store, total, len(visits.meta.ids), hyper)

    return _algorithm(adapt, memory, outer, step, needs)


def fill(adapt: Adapt, memory: Memory) -> Any:
    """Eager filling: one pass that writes u_i = A(w; S1) for the tasks of a visit."""

    def filled(state: State, visit: Visit, hyper: Hyper, each: Each = side_by_side) -> State:
        adapted = lambda row, visit: ((), adapt.apply(state.meta, visit.task.support, hyper))
        unread = memory._replace(read=lambda *_: ())
        return state._replace(memory=each(adapted, unread, state.memory, visit)[1])

    return filled
