"""FedAvg's convolutional network."""

from typing import NamedTuple

import jax
from jaxtyping import Array, Float

from moml.errors import ConfigError, check_count
from moml.kept import kept
from moml.models.convolution import Convolution, Images, convolve, filters, max_pool
from moml.models.networks import Layer, Model, affine_each, linear
from moml.types import Key

KERNEL, FILTERS, HIDDEN = 5, (32, 64), 512


class CNN(NamedTuple):
    """The parameters: two convolutions, a hidden layer, and a linear head."""

    body: tuple[Convolution, ...]
    hidden: Layer
    head: Layer


@kept
def cnn(channels: int, classes: int, *, side: int = 32) -> Model:
    """FedAvg's network for images [K, side, side, channels], as PFLlib has it.

    Two blocks relu(max_pool(conv(x) + bias)), 5 x 5 without padding, to 32 and to 64 channels; then
    relu(W h + b) to 512 units, and a linear head.

    Parameters
    ----------
    channels, classes
        Of the images, and the number of logits.
    side
        Height and width of the images: 28 gives 1,024 inputs of the hidden layer, 32 gives 1,600.

    Returns
    -------
    Model
        `init(key)` gives a `CNN` as PyTorch initialises it, U(-1, 1) / sqrt(fan_in) for weights and
        biases; `predict(params, x)` logits [K, classes].

    >>> import jax.numpy as jnp
    >>> net = cnn(1, 10, side=28)
    >>> net.predict(net.init(jax.random.key(0)), jnp.zeros((5, 28, 28, 1))).shape
    (5, 10)
    """
    check_count("channels", channels)
    check_count("classes", classes)
    last = check_count("side", side)
    for _ in FILTERS:
        last = (last - KERNEL + 1) // 2
    if last < 1:
        raise ConfigError(f"side must be at least 16 pixels; got {side}")

    @jax.jit
    def init(key: Key) -> CNN:
        *keys, hidden, head = jax.random.split(key, len(FILTERS) + 2)
        sizes = zip(keys, (channels, *FILTERS), FILTERS, strict=False)
        body = tuple(_convolution(key, inputs, outputs) for key, inputs, outputs in sizes)
        inputs = last * last * FILTERS[-1]
        return CNN(body, linear(hidden, inputs, HIDDEN), linear(head, HIDDEN, classes))

    def features(params: CNN, x: Images) -> Float[Array, "K hidden"]:
        for layer in params.body:
            # max(y) + b = max(y + b), and relu(max(y)) = max(relu(y)), with a quarter of the work
            y = max_pool(convolve(x, layer.weight, KERNEL))
            x = jax.nn.relu(y + layer.bias[None, None, None])
        flat = x.reshape(len(x), -1)
        return jax.nn.relu(affine_each(params.hidden, flat))

    def predict(params: CNN, x: Images) -> Float[Array, "K classes"]:
        return affine_each(params.head, features(params, x))

    return Model(init, predict, features)


def _convolution(key: Key, inputs: int, outputs: int) -> Convolution:
    weight_key, bias_key = jax.random.split(key)
    limit = (KERNEL * KERNEL * inputs) ** -0.5
    bias = jax.random.uniform(bias_key, (outputs,), minval=-limit, maxval=limit)
    return Convolution(filters(weight_key, KERNEL, inputs, outputs), bias)
