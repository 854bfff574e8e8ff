"""Our networks as equinox modules; imported where one is made, for equinox takes time to load."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.models.conv4 import Images, Maps, Normalise, patches
from moml.types import Key


class MLP(eqx.Module):
    """A fully connected network; `head` is its last layer, so that it can be named."""

    body: tuple[eqx.nn.Linear, ...]
    head: eqx.nn.Linear
    activation: Callable = eqx.field(static=True)

    def __init__(self, sizes: tuple[int, ...], activation: Callable, key: Key):
        keys = jax.random.split(key, len(sizes) - 1)
        layers = [
            eqx.nn.Linear(i, o, key=k) for i, o, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        ]
        self.body, self.head, self.activation = tuple(layers[:-1]), layers[-1], activation

    def features(self, x: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        for layer in self.body:
            x = self.activation(layer(x))
        return x

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " out"]:
        return self.head(self.features(x))


class Block(eqx.Module):
    """A 3 x 3 convolution with stride 2, its normalisation's scale and offset, ReLU."""

    weight: Float[Array, "nine_in out"]
    scale: Float[Array, " out"]
    offset: Float[Array, " out"]

    def __init__(self, channels: int, filters: int, key: Key):
        size = (9 * channels, filters)
        self.weight = jax.nn.initializers.glorot_uniform()(key, size, float)
        self.scale, self.offset = jnp.ones(filters), jnp.zeros(filters)

    def __call__(self, x: Images, normalise: Normalise) -> Maps:
        y = normalise(patches(x) @ self.weight)
        return jax.nn.relu(y * self.scale[None, None, None] + self.offset[None, None, None])


class Conv4(eqx.Module):
    """Four blocks, the mean over what is left of the picture, a linear head."""

    body: tuple[Block, ...]
    head: eqx.nn.Linear

    def __init__(self, channels: int, classes: int, filters: int, key: Key):
        *keys, head = jax.random.split(key, 5)
        sizes = (channels, filters, filters, filters)
        self.body = tuple(Block(size, filters, k) for size, k in zip(sizes, keys, strict=True))
        self.head = eqx.nn.Linear(filters, classes, key=head)

    def features(self, x: Images, normalise: Normalise) -> Float[Array, "K filters"]:
        for block in self.body:
            x = block(x, normalise)
        return jnp.mean(x, axis=(1, 2))
