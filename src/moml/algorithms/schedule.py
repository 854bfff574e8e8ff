"""Schedules: how hyper-parameters change with the step, outside the algorithms."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Int

from moml.types import Hyper

Schedule = Callable[[Hyper, Int[Array, ""]], Hyper]


def constant(hyper: Hyper, step: Int[Array, ""]) -> Hyper:
    """Nothing changes."""
    return hyper


def decay_at(step: int, factor: float = 0.1) -> Schedule:
    """eta times `factor` from iteration `step` on: the paper's, at 75 % of the iterations.

    >>> schedule = decay_at(30_000)
    >>> round(float(schedule(Hyper(eta=0.005), jnp.array(30_000)).eta), 6)
    0.0005
    """
    at = step
    return lambda hyper, step: hyper._replace(
        eta=jnp.where(step < at, hyper.eta, factor * hyper.eta)
    )


def beta_follows_eta(eta: float, beta: float) -> Schedule:
    """beta = `beta` (eta_t / `eta`)^(2/3), the theorem's relation, never above 1."""
    return lambda hyper, step: hyper._replace(
        beta=jnp.minimum(beta * (hyper.eta / eta) ** (2 / 3), 1.0)
    )
