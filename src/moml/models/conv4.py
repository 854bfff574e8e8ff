"""Conv4: the four convolutional blocks that few-shot classification is measured with."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.errors import ConfigError
from moml.models.networks import Model

Images = Float[Array, "K height width channels"]
Normalise = Callable[[Images], Images]
Maps = Float[Array, "K smaller_h smaller_w out"]


def _standardised(axes: tuple[int, ...]) -> Normalise:
    def normalise(x: Images) -> Images:
        mean, variance = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5)

    return normalise


NORMS: dict[str, Normalise] = {
    "batch": _standardised((0, 1, 2)),  # each channel over the whole batch given: transductive
    "sample": _standardised((1, 2, 3)),  # each image by itself: an answer never depends on others
    "none": lambda x: x,
}


def patches(x: Images) -> Maps:
    """Every second 3 x 3 neighbourhood, as a row: [K, ceil(h/2), ceil(w/2), 9 channels].

    With the weights of many tasks side by side one matrix product of these is twice as fast as a
    convolution, which XLA would do group by group.
    """
    high, wide = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + high : 2, j : j + wide : 2] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, axis=-1)


def conv4(channels: int, classes: int, *, filters: int = 64, norm: str = "batch") -> Model:
    """The standard four blocks for images [K, height, width, channels].

    `norm` says what a block's outputs are standardised over: "batch", the batch that is given, so
    that an answer depends on the other queries beside it (transductive, as in the original MAML);
    "sample", each image by itself, so that it does not; or "none".

    >>> net = conv4(1, 20, filters=8)
    >>> net.predict(net.init(jax.random.key(0)), jnp.zeros((5, 28, 28, 1))).shape
    (5, 20)
    """
    if norm not in NORMS:
        raise ConfigError(f"unknown norm {norm!r}; allowed: {', '.join(NORMS)}")
    from moml.models.modules import Conv4

    normalise = NORMS[norm]

    def features(net: Any, x: Images) -> Float[Array, "K filters"]:
        return net.features(x, normalise)

    def predict(net: Any, x: Images) -> Float[Array, "K classes"]:
        return jax.vmap(net.head)(features(net, x))

    return Model(lambda key: Conv4(channels, classes, filters, key), predict, features)
