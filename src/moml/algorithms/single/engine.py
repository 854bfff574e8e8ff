"""The step of single-node methods: personal steps of B tasks, their mean, an optimizer."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Float, PyTree

from moml.algorithms.method import Method
from moml.algorithms.parts.choices import Inner
from moml.algorithms.parts.optimizer import Optimizer, optimizer_step, transformation
from moml.algorithms.parts.personal import Step, personal_step, pull_back, query
from moml.algorithms.parts.task_map import TaskMap, mean_from_sum, norm, side_by_side
from moml.types import (
    Adapt,
    Algorithm,
    Hyper,
    Info,
    Loss,
    Memory,
    Meta,
    Params,
    SampleSpec,
    TaskBatch,
)


class State(NamedTuple):
    """What the next step needs."""

    meta: Meta
    memory: PyTree
    optimizer: PyTree


class TwoBatches(NamedTuple):
    """v2's batches in the paper: B' moves the memories, B gives the meta-gradient."""

    memory: PyTree
    meta: PyTree


class Outcome(NamedTuple):
    """What is summed over the tasks of a step."""

    delta: Meta
    loss: Float[Array, ""]


def _algorithm(
    adapt: Adapt,
    memory: Memory,
    optimizer: Optimizer,
    step: Callable[..., tuple[State, Info]],
    needs: SampleSpec | TwoBatches,
) -> Algorithm:
    def init(params: Params, hyper: Hyper) -> State:
        meta = adapt.init(params, hyper)
        kept = transformation(optimizer, hyper).init(meta)
        return State(meta, memory.init(adapt.start(meta)), kept)

    rows = State(meta=False, memory=memory.rows, optimizer=False)
    return Algorithm(init, step, needs, fill=fill(adapt, memory), rows=rows)


def _finish(
    optimizer: Optimizer, state: State, memory: PyTree, total: Outcome, count: int, hyper: Hyper
) -> tuple[State, Info]:
    delta, loss = mean_from_sum(count, total)
    meta, kept = optimizer_step(optimizer, state.meta, state.optimizer, delta, hyper)
    return State(meta, memory, kept), Info(loss, norm(delta))


def single_node(
    loss: Loss,
    adapt: Adapt,
    memory: Memory,
    optimizer: Optimizer,
    need: SampleSpec,
    visiting: Callable[..., Callable[..., Step]] = personal_step,
) -> Algorithm:
    """One task batch an iteration: MAML, MOML v1, v2 as released, SCGD, NASA, and ours."""
    visit_one = visiting(loss, adapt, memory)

    def step(
        state: State, visit: TaskBatch, hyper: Hyper, each: TaskMap = side_by_side
    ) -> tuple[State, Info]:
        def one(row: PyTree, visit: TaskBatch) -> tuple[Outcome, PyTree]:
            done = visit_one(state.meta, row, visit.task, hyper)
            return Outcome(done.delta, done.loss), done.u

        store = memory.tick(state.memory, adapt.start(state.meta), hyper)
        total, store = each(one, memory, store, visit)
        return _finish(optimizer, state, store, total, len(visit.ids), hyper)

    return _algorithm(adapt, memory, optimizer, step, need)


def single_node_method(
    loss: Loss,
    inner: Inner,
    memory: Memory,
    optimizer: Optimizer,
    need: SampleSpec,
    hyper: Hyper,
    visiting: Callable[..., Callable[..., Step]] = personal_step,
) -> Method:
    """The method of `single_node`, with the adaptation that its keywords describe."""
    adaptation = inner.adaptation(loss)
    algorithm = single_node(loss, adaptation(inner.inner_steps), memory, optimizer, need, visiting)
    return Method(algorithm, adaptation, hyper, memory, options={"tasks_per_step": need.tasks})


def two_batches(
    loss: Loss, adapt: Adapt, memory: Memory, optimizer: Optimizer, needs: TwoBatches
) -> Algorithm:
    """MOML v2 with the paper's two independent task batches (Algorithm 2)."""

    def step(
        state: State, visits: TwoBatches, hyper: Hyper, each: TaskMap = side_by_side
    ) -> tuple[State, Info]:
        w = adapt.start(state.meta)

        def remember(row: PyTree, visit: TaskBatch) -> tuple[tuple[()], PyTree]:
            v = adapt.apply(state.meta, visit.task.support, hyper)
            return (), memory.mix(row, w, v, hyper)

        def meta_gradient(u: PyTree, visit: TaskBatch) -> tuple[Outcome, tuple[()]]:
            _, pull = pull_back(adapt, state.meta, visit.task.hessian, hyper)
            done = query(loss, adapt, state.meta, u, pull, visit.task.query)
            return Outcome(done.delta, done.loss), ()

        store = memory.tick(state.memory, w, hyper)
        _, store = each(remember, memory, store, visits.memory)
        asked = memory._replace(write=lambda store, *_: store)
        total, _ = each(meta_gradient, asked, store, visits.meta)
        return _finish(optimizer, state, store, total, len(visits.meta.ids), hyper)

    return _algorithm(adapt, memory, optimizer, step, needs)


def fill(adapt: Adapt, memory: Memory) -> Callable[..., State]:
    """Eager filling: one pass that writes u_i = A(w; S1) for the tasks of a visit."""

    def filled(state: State, visit: TaskBatch, hyper: Hyper, each: TaskMap = side_by_side) -> State:
        adapted = lambda row, visit: ((), adapt.apply(state.meta, visit.task.support, hyper))
        unread = memory._replace(read=lambda *_: ())
        return state._replace(memory=each(adapted, unread, state.memory, visit)[1])

    return filled
