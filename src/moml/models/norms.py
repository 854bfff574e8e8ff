"""Normalisations of maps [K, h, w, channels], with a scale and an offset of each channel."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from moml.models.convolution import Images
from moml.types import Params

EPSILON, MOMENTUM, GROUPS = 1e-5, 0.1, 2

Channels = Float[Array, " channels"]
Mask = Shaped[Array, " K"] | None


class Norm(NamedTuple):
    """Scale and offset of each channel."""

    scale: Channels
    offset: Channels


class Stats(NamedTuple):
    """Running statistics of each channel: state, which no gradient moves."""

    mean: Channels
    variance: Channels


class BatchNorm(NamedTuple):
    """Scale and offset of each channel, and its running statistics."""

    scale: Channels
    offset: Channels
    stats: Stats


Normalise = Callable[[PyTree, Images], tuple[Images, PyTree]]  # norm, x -> y, norm


def new_norm(channels: int, *, stats: bool) -> Norm | BatchNorm:
    """Scale 1 and offset 0, with statistics variance 1 and mean 0."""
    one, zero = jnp.ones(channels), jnp.zeros(channels)
    return BatchNorm(one, zero, Stats(zero, one)) if stats else Norm(one, zero)


def statistics(params: Params) -> PyTree[bool]:
    """Which leaves are running statistics.

    >>> statistics(new_norm(2, stats=True))
    BatchNorm(scale=False, offset=False, stats=Stats(mean=True, variance=True))
    """
    is_stats = lambda node: isinstance(node, Stats)
    mark = lambda node: Stats(True, True) if is_stats(node) else False  # type: ignore[arg-type]
    return jax.tree.map(mark, params, is_leaf=is_stats)


def group_norm(norm: Norm, x: Images) -> tuple[Images, Norm]:
    """Each image standardised alone, in two groups of channels.

    y = scale * (x - mean_g(x)) / sqrt(var_g(x) + 1e-5) + offset
    """
    groups = x.reshape(*x.shape[:3], GROUPS, -1)
    mean = jnp.mean(groups, (1, 2, 4), keepdims=True)
    variance = jnp.var(groups, (1, 2, 4), keepdims=True)
    even = (groups - mean) * jax.lax.rsqrt(variance + EPSILON)
    return _scaled(norm, even.reshape(x.shape)), norm


def running_norm(norm: BatchNorm, x: Images) -> tuple[Images, BatchNorm]:
    """Batch norm at use, by the running statistics.

    y = scale * (x - mean) / sqrt(variance + 1e-5) + offset
    """
    return _scaled(norm, _standardised(x, norm.stats)), norm


def batch_norm(mask: Mask) -> Normalise:
    """Batch norm in training: by statistics of the batch, which move the running ones.

        mean <- 0.9 mean + 0.1 mean_batch,    variance <- 0.9 variance + 0.1 N / (N - 1) var_batch

    N counts the pixels of the real samples. A batch without any leaves the statistics as they are.
    """

    def normalise(norm: BatchNorm, x: Images) -> tuple[Images, BatchNorm]:
        real = jnp.ones(len(x), x.dtype) if mask is None else mask.astype(bool).astype(x.dtype)
        weight = jnp.broadcast_to(real[:, None, None, None], (*x.shape[:3], 1))
        count = jnp.sum(weight)
        mean_of = lambda x: jnp.sum(weight * x, (0, 1, 2)) / jnp.maximum(count, 1)
        mean = mean_of(x)
        variance = mean_of((x - mean[None, None, None]) ** 2)
        y = _scaled(norm, _standardised(x, Stats(mean, variance)))
        found = Stats(mean, variance * count / jnp.maximum(count - 1, 1))
        rate = MOMENTUM * (count > 0).astype(x.dtype)
        stats = jax.tree.map(lambda old, new: (1 - rate) * old + rate * new, norm.stats, found)
        return y, norm._replace(stats=stats)

    return normalise


def _standardised(x: Images, stats: Stats) -> Images:
    mean, variance = (each[None, None, None] for each in stats)
    return (x - mean) * jax.lax.rsqrt(variance + EPSILON)


def _scaled(norm: Norm | BatchNorm, x: Images) -> Images:
    return x * norm.scale[None, None, None] + norm.offset[None, None, None]
