"""BSpiderBoost: now and then a large task batch, in between the same tasks at two points."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from moml.algorithms.memory import none
from moml.algorithms.moml import mean, norm
from moml.algorithms.personal import Step, personal_step
from moml.types import Adapt, Algorithm, Hyper, Info, Loss, Meta, Need, Params, Visit


class Cycle(NamedTuple):
    """One cycle of q iterations: a large batch of N1 tasks, then q - 1 batches of N2."""

    large: Any
    small: Any


class SpiderState(NamedTuple):
    """A cycle begins afresh: nothing is carried but the model."""

    meta: Meta


def bspiderboost(loss: Loss, adapt: Adapt, needs: Cycle) -> Algorithm:
    """z = Delta(w_t; N1) every q iterations, else z <- z + Delta(w_t; N2) - Delta(w_{t-1}; N2).

    Both points of a difference see the same tasks and samples. One `step` is a cycle.
    """
    visit_one = personal_step(loss, adapt, none())

    def estimate(meta: Meta, visit: Visit, hyper: Hyper) -> Step:
        steps = jax.vmap(lambda task: visit_one(meta, (), task, hyper))(visit.task)
        return mean(steps)

    def move(meta: Meta, z: Meta, hyper: Hyper) -> Meta:
        return jax.tree.map(lambda w, z: w - hyper.eta * z, meta, z)  # w <- w - eta z

    def step(state: SpiderState, cycle: Cycle, hyper: Hyper) -> tuple[SpiderState, Info]:
        first = estimate(state.meta, cycle.large, hyper)

        def correct(carry: Any, visit: Visit) -> Any:
            before, meta, z = carry
            here, there = estimate(meta, visit, hyper), estimate(before, visit, hyper)
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

    small: Need | None = needs.small
    q = 1 if small is None or small.times is None else 1 + small.times
    return Algorithm(init, step, needs, iterations=q)
