"""Summaries of a task's rows (see `summary`) without the rows: merged, and read."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Fields(NamedTuple):
    """What a summary of k rows has, in its order; sums are divided by k + 1."""

    y: Float[Array, " out"]
    spread: Float[Array, " out"]
    number: Float[Array, " 1"]
    x: Float[Array, " features"]
    newest: Float[Array, " _"]  # targets and inputs, where rows are ordered


def fields(summary: Float[Array, " summary"], out: int, features: int) -> Fields:
    """The fields of a summary."""
    ends = [out, 2 * out, 2 * out + 1, 2 * out + 1 + features]
    return Fields(*jnp.split(summary, ends))


def mean_of(sums: Float[Array, " n"], k: Any) -> Float[Array, " n"]:
    """The mean of k rows from a field y or x; 0 of none."""
    return sums * (k + 1) / jnp.maximum(k, 1)


def merged(
    old: Float[Array, " summary"],
    k: Float[Array, ""],
    new: Float[Array, " summary"],
    n: Float[Array, ""],
    out: int,
    features: int,
) -> Float[Array, " summary"]:
    """The summary of k rows and of n later ones together, from the summaries of both."""
    a, b = fields(old, out, features), fields(new, out, features)
    mean = lambda a, b: (a * (k + 1) + b * (n + 1)) / (k + n + 1)
    apart = k * n / jnp.maximum(k + n, 1) * (mean_of(a.y, k) - mean_of(b.y, n)) ** 2
    squares = a.spread**2 * (k + 1) + b.spread**2 * (n + 1) - 1e-6 + apart
    spread = jnp.sqrt(jnp.maximum(squares, 1e-6) / (k + n + 1))
    number = ((k + n) / (k + n + 3))[None]
    newest = jnp.where(n > 0, b.newest, a.newest)
    return jnp.concatenate([mean(a.y, b.y), spread, number, mean(a.x, b.x), newest])
