"""Reptile: move towards where the tasks' own training went."""

import jax
import jax.numpy as jnp
import optax

from moml.algorithms.moml import State, mean, norm, outer_step
from moml.types import Adapt, Algorithm, Hyper, Info, Loss, Need, Params, Visit


def reptile(loss: Loss, adapt: Adapt, outer: optax.GradientTransformation, need: Need) -> Algorithm:
    """w <- w + eta mean(v^(k) - w) after k inner steps, with S1 alone; its loss is that at v."""

    def init(params: Params, hyper: Hyper) -> State:
        meta = adapt.init(params, hyper)
        return State(meta, (), outer.init(meta))

    def step(state: State, visit: Visit, hyper: Hyper) -> tuple[State, Info]:
        meta = state.meta

        def towards(samples: object) -> tuple[object, jax.Array]:
            v = adapt.merge(meta, adapt.apply(meta, samples, hyper))
            return optax.tree.sub(meta, v), loss(v, samples)

        deltas, losses = jax.vmap(towards)(visit.task.support)
        delta = mean(deltas)
        meta, outer_state = outer_step(outer, meta, state.outer, delta, hyper)
        return State(meta, (), outer_state), Info(jnp.mean(losses), norm(delta))

    return Algorithm(init, step, need)
