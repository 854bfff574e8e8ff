"""Outer rules that optax lacks. An outer rule gives a direction; the step is w <- w - eta * it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int


class NasaState(NamedTuple):
    """The averaged gradient, and how many gradients went into it."""

    z: Any
    steps: Int[Array, ""]


def nasa() -> optax.GradientTransformationExtraArgs:
    """NASA's averaged gradient: z <- (1 - gamma) z + gamma Delta, started at the first Delta."""

    def init(params: Any) -> NasaState:
        return NasaState(optax.tree.zeros_like(params), jnp.zeros((), jnp.int32))

    def update(
        delta: Any, state: NasaState, params: Any = None, *, gamma: Any = 1.0, **extra: Any
    ) -> tuple[Any, NasaState]:
        weight = jnp.where(state.steps > 0, gamma, jnp.ones_like(gamma))
        z = optax.incremental_update(delta, state.z, weight)
        return z, NasaState(z, state.steps + 1)

    return optax.GradientTransformationExtraArgs(init, update)


def is_direction(outer: Any) -> bool:
    """Whether an optax transformation keeps a gradient's sign, as an outer rule must.

    A whole optimiser such as `optax.adam(1e-3)` turns it round, being meant to be added.

    >>> is_direction(optax.scale_by_adam()), is_direction(optax.adam(1e-3))
    (True, False)
    """
    with jax.ensure_compile_time_eval():  # a method may be composed inside a program
        one = jnp.ones(())
        direction, _ = optax.with_extra_args_support(outer).update(one, outer.init(one), one)
        return bool(jax.device_get(direction) >= 0)
