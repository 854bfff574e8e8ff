"""Conv4: the network of four convolutional blocks usual in few-shot classification."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.errors import ConfigError, check_count
from moml.kept import kept
from moml.models.convolution import Images, convolve
from moml.models.networks import Layer, Model, affine_each, linear
from moml.types import Key

Normalise = Callable[[Images], Images]


def _standardised(axes: tuple[int, ...]) -> Normalise:
    def normalise(x: Images) -> Images:
        mean, variance = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5)

    return normalise


NORMS: dict[str, Normalise] = {
    "batch": _standardised((0, 1, 2)),  # each channel over the whole batch: transductive
    "sample": _standardised((1, 2, 3)),  # each image separately: predictions are independent
    "none": lambda x: x,
}


class Block(NamedTuple):
    """A 3 x 3 convolution with stride 2, and the scale and offset of its normalisation."""

    weight: Float[Array, "nine_in out"]
    scale: Float[Array, " out"]
    offset: Float[Array, " out"]


class Conv4(NamedTuple):
    """The parameters: four blocks and a linear head."""

    body: tuple[Block, ...]
    head: Layer


@kept
def conv4(channels: int, classes: int, *, filters: int = 64, norm: str = "batch") -> Model:
    """The standard four blocks for images [K, height, width, channels].

    Each block is relu(scale * normalise(conv(x)) + offset); a mean over the remaining pixels and a
    linear head follow.

    Parameters
    ----------
    channels, classes
        Of the images, and the number of logits.
    filters
        Output channels of each block.
    norm
        What a block's outputs are standardised over: "batch", all images of the batch, so that a
        prediction depends on the other queries (transductive, as in the original MAML); "sample",
        each image separately; or "none".

    Returns
    -------
    Model
        `init(key)` gives a `Conv4`, `predict(params, x)` logits [K, classes].

    >>> net = conv4(1, 20, filters=8)
    >>> net.predict(net.init(jax.random.key(0)), jnp.zeros((5, 28, 28, 1))).shape
    (5, 20)
    """
    if norm not in NORMS:
        raise ConfigError(f"norm must be one of {', '.join(NORMS)}; got {norm!r}")
    for name, size in {"channels": channels, "classes": classes, "filters": filters}.items():
        check_count(name, size, below=2**31)
    normalise, glorot = NORMS[norm], jax.nn.initializers.glorot_uniform()

    def init(key: Key) -> Conv4:
        *keys, head = jax.random.split(key, 5)
        sizes = (channels, filters, filters, filters)
        weights = [glorot(k, (9 * i, filters), float) for k, i in zip(keys, sizes, strict=True)]
        body = tuple(Block(weight, jnp.ones(filters), jnp.zeros(filters)) for weight in weights)
        return Conv4(body, linear(head, filters, classes))

    def features(params: Conv4, x: Images) -> Float[Array, "K filters"]:
        for block in params.body:
            y = normalise(convolve(x, block.weight, 3, stride=2, padding=1))
            x = jax.nn.relu(y * block.scale[None, None, None] + block.offset[None, None, None])
        return jnp.mean(x, axis=(1, 2))

    def predict(params: Conv4, x: Images) -> Float[Array, "K classes"]:
        return affine_each(params.head, features(params, x))

    return Model(init, predict, features)
