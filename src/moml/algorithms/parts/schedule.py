"""Schedules: how hyper-parameters change with the step, outside the algorithms."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from moml.types import Hyper

Schedule = Callable[[Hyper, Int[Array, ""]], Hyper]


def scheduled(schedule: Schedule, hyper: Hyper, step: Int[Array, ""]) -> Hyper:
    """The hyper-parameters of a step; weakly typed ones remain so, for leaves of several types."""
    weak = lambda x: getattr(x, "weak_type", False)
    keep = lambda old, new: jax.lax.full_like(old, new) if weak(old) and not weak(new) else new
    return jax.tree.map(keep, hyper, schedule(hyper, step))


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


def cosine(steps: int, least: float = 0.01) -> Schedule:
    """eta falls along half a cosine, to `least` of it after `steps` iterations.

    >>> schedule = cosine(1000)
    >>> [round(float(schedule(Hyper(eta=1.0), jnp.array(t)).eta), 3) for t in (0, 500, 1000)]
    [1.0, 0.505, 0.01]
    """

    def falling(hyper: Hyper, step: Int[Array, ""]) -> Hyper:
        done = jnp.minimum(step / steps, 1.0).astype(jnp.asarray(hyper.eta).dtype)
        return hyper._replace(
            eta=hyper.eta * (least + (1 - least) * (1 + jnp.cos(jnp.pi * done)) / 2)
        )

    return falling


def beta_follows_eta(eta: float, beta: float) -> Schedule:
    """beta = `beta` (eta_t / `eta`)^(2/3), the theorem's relation, never above 1."""
    return lambda hyper, step: hyper._replace(
        beta=jnp.minimum(beta * (hyper.eta / eta) ** (2 / 3), 1.0)
    )
