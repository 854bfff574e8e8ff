"""BSpiderBoost: now and then a large task batch, in between the same tasks at two points."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import ANY, Inner, Sampling, batch_size, spec
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.personal import personal_step
from moml.algorithms.parts.task_map import TaskMap, mean_from_sum, norm, side_by_side
from moml.algorithms.signature import Count, NonNegative, Positive
from moml.algorithms.single.engine import Outcome
from moml.types import (
    Adapt,
    Algorithm,
    Hyper,
    Info,
    Loss,
    Meta,
    Params,
    SampleSpec,
    Task,
    TaskBatch,
)


class Cycle(NamedTuple):
    """One cycle of q iterations: a large batch of N1 tasks, then q - 1 batches of N2."""

    large: PyTree
    small: PyTree


class SpiderState(NamedTuple):
    """A cycle begins afresh: nothing is carried but the model."""

    meta: Meta


def same(task: Task) -> tuple[Task, Task]:
    """The two points of a difference see the same samples."""
    return task, task


def spider_steps(
    loss: Loss, adapt: Adapt, needs: Cycle, points: Callable[[Task], tuple[Task, Task]] = same
) -> Algorithm:
    """z = Delta(w_t; N1) every q iterations, else z <- z + Delta(w_t; N2) - Delta(w_{t-1}; N2).

    Both points of a difference see the same tasks and, unless `points` parts them, the same
    samples. One `step` is a cycle.
    """
    visit_one = personal_step(loss, adapt, none())

    def estimate(meta: Meta, visit: TaskBatch, hyper: Hyper, each: TaskMap) -> Outcome:
        def one(row: tuple[()], visit: TaskBatch) -> tuple[Outcome, tuple[()]]:
            done = visit_one(meta, row, visit.task, hyper)
            return Outcome(done.delta, done.loss), ()

        return mean_from_sum(len(visit.ids), each(one, none(), (), visit)[0])

    def move(meta: Meta, z: Meta, hyper: Hyper) -> Meta:
        return jax.tree.map(lambda w, z: w - hyper.eta * z, meta, z)  # w <- w - eta z

    def step(
        state: SpiderState, cycle: Cycle, hyper: Hyper, each: TaskMap = side_by_side
    ) -> tuple[SpiderState, Info]:
        first = estimate(state.meta, cycle.large, hyper, each)

        def correct(carry: PyTree, visit: TaskBatch) -> tuple[PyTree, Float[Array, ""]]:
            before, meta, z = carry
            at_here, at_there = (visit._replace(task=task) for task in points(visit.task))
            here = estimate(meta, at_here, hyper, each)
            there = estimate(before, at_there, hyper, each)
            z = jax.tree.map(lambda z, a, b: z + a - b, z, here.delta, there.delta)
            return (meta, move(meta, z, hyper), z), here.loss

        carry = (state.meta, move(state.meta, first.delta, hyper), first.delta)
        losses = first.loss[None]
        if cycle.small is not None:
            carry, later = jax.lax.scan(correct, carry, cycle.small)
            losses = jnp.concatenate([losses, later])
        return SpiderState(carry[1]), Info(jnp.mean(losses), norm(carry[2]))

    def init(params: Params, hyper: Hyper) -> SpiderState:
        return SpiderState(adapt.init(params, hyper))

    small: SampleSpec | None = needs.small
    q = 1 if small is None or small.times is None else 1 + small.times
    return Algorithm(init, step, needs, iterations=q)


@factory
def bspiderboost(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    large_tasks: Count | None = None,
    period: Count = 3,
    eta: Positive = 0.001,
    alpha: NonNegative = 0.01,
    inner: Inner,
    independent_hessian: bool = False,
) -> Method:
    """BSpiderBoost: a large task batch every q iterations, corrected in between.

    z = Delta(w_t; N1) every q iterations, else z <- z + Delta(w_t; N2) - Delta(w_{t-1}; N2)
    w <- w - eta z

    Parameters
    ----------
    large_tasks : int
        Tasks in a large batch, N1; at most n. By default 10.
    period : int
        Iterations from one large batch to the next, q.

    Examples
    --------
    >>> from moml.methods import bspiderboost
    >>> bspiderboost(lambda w, x: (w - x) ** 2, period=5).algorithm.iterations
    5
    """
    adaptation = inner.adaptation(loss)
    large = batch_size("large_tasks", large_tasks, 10, batch.n)
    small = batch.spec(independent_hessian)._replace(times=period - 1) if period > 1 else None
    cycle = Cycle(spec(large, batch.k, independent_hessian), small)
    algorithm = spider_steps(loss, adaptation(inner.inner_steps), cycle)
    used = {"tasks_per_step": batch.size, "large_tasks": large}
    return Method(algorithm, adaptation, Hyper(eta=eta, alpha=alpha), options=used)
