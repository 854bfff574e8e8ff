"""Networks as functions of their parameters.

A model is its parameters, a pytree of arrays, and pure functions of them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from moml.errors import ConfigError, check_count
from moml.kept import kept
from moml.types import Key, Params

Predict = Callable[[Params, PyTree], Array]  # params, x [K, ...] -> [K, out]
Activation = Callable[[Array], Array]


class Training(NamedTuple):
    """A network as it is trained, where that is not `predict`: with dropout, or batch statistics.

    `apply` maps params, x, the batch's mask and a key (None: no dropout) to the outputs and to the
    params with new statistics. `state` marks the leaves of params that are statistics.
    """

    apply: Callable[[Params, PyTree, PyTree, Key | None], tuple[Array, Params]]
    key: bool = False  # whether it draws
    state: Callable[[Params], PyTree[bool]] | None = None


class Model(NamedTuple):
    """A network as functions of its parameters; `predict` as it is used."""

    init: Callable[[Key], Params]
    predict: Predict
    features: Predict | None = None  # the inputs of its linear head
    training: Training | None = None  # None: it is trained as it predicts


class Layer(NamedTuple):
    """A linear layer x -> weight x + bias."""

    weight: Float[Array, "out inputs"]
    bias: Float[Array, " out"]


class MLP(NamedTuple):
    """The parameters of a fully connected network; `head` is its last layer."""

    body: tuple[Layer, ...]
    head: Layer


def linear(key: Key, inputs: int, outputs: int) -> Layer:
    """A layer with weights and biases from U(-1, 1) / sqrt(inputs)."""
    weight_key, bias_key = jax.random.split(key)
    limit = inputs**-0.5
    draw = lambda key, shape: jax.random.uniform(key, shape, minval=-limit, maxval=limit)
    return Layer(draw(weight_key, (outputs, inputs)), draw(bias_key, (outputs,)))


def affine(layer: Layer, x: Float[Array, " inputs"]) -> Float[Array, " out"]:
    """The layer's output for one sample."""
    return layer.weight @ x + layer.bias


affine_each = jax.vmap(affine, (None, 0))  # of samples [K, inputs]


@kept
def mlp(*sizes: int, activation: Activation = jax.nn.relu) -> Model:
    """A fully connected network: h <- activation(W h + b) for each hidden layer, then W h + b.

    Parameters
    ----------
    *sizes
        Numbers of inputs, of units of each hidden layer, and of outputs: `mlp(1, 40, 40, 1)` is
        the network of the paper's sine regression. Inputs are flattened, so `mlp(784, 40, 40, 20)`
        takes images [K, 28, 28, 1].
    activation
        Applied after each hidden layer.

    Returns
    -------
    Model
        `init(key)` gives an `MLP`, `predict(params, x)` outputs [K, out].

    >>> import jax.numpy as jnp
    >>> net = mlp(1, 40, 40, 1)
    >>> net.predict(net.init(jax.random.key(0)), jnp.zeros((5, 1))).shape
    (5, 1)
    """
    if len(sizes) < 2:
        raise ConfigError(f"sizes must be inputs, hidden units and outputs; got {sizes}")
    sizes = tuple(check_count("each of sizes", size, below=2**31) for size in sizes)

    @jax.jit
    def init(key: Key) -> MLP:
        keys = jax.random.split(key, len(sizes) - 1)
        layers = [linear(k, i, o) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)]
        return MLP(tuple(layers[:-1]), layers[-1])

    def hidden(params: MLP, x: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        for layer in params.body:
            x = activation(affine(layer, x))
        return x

    flat = lambda x: x if x.ndim == 2 else x.reshape(len(x), -1)
    return Model(
        init,
        lambda params, x: jax.vmap(lambda x: affine(params.head, hidden(params, x)))(flat(x)),
        lambda params, x: jax.vmap(lambda x: hidden(params, x))(flat(x)),
    )


@kept
def shifted(net: Model, mean: float, std: float) -> Model:
    """The same network with inputs (x - mean) / std.

    >>> import jax.numpy as jnp
    >>> net = Model(lambda key: 2.0, lambda w, x: w * x)
    >>> shifted(net, 1.0, 0.5).predict(2.0, jnp.array([1.0, 2.0])).tolist()
    [0.0, 4.0]
    """
    inner, training = net.features, net.training
    move = lambda x: (x - mean) / std
    if training is not None:
        apply = training.apply
        training = training._replace(
            apply=lambda params, x, mask, key: apply(params, move(x), mask, key)
        )
    return Model(
        net.init,
        lambda params, x: net.predict(params, move(x)),
        None if inner is None else lambda params, x: inner(params, move(x)),
        training,
    )


@kept
def feature_dropout(net: Model, rate: float) -> Model:
    """The same network, trained with dropout of its features, the inputs of its linear head.

    In training a feature is 0 with probability `rate`, else divided by 1 - rate.

    >>> import jax.numpy as jnp
    >>> net = feature_dropout(mlp(2, 8, 3), 0.5)
    >>> params, x = net.init(jax.random.key(0)), jnp.ones((4, 2))
    >>> trained, _ = net.training.apply(params, x, None, None)  # no key: no dropout
    >>> bool(jnp.allclose(trained, net.predict(params, x)))
    True
    """
    features = net.features
    if features is None:
        raise ConfigError("feature_dropout needs a network with features; got features = None")

    def apply(params: Params, x: PyTree, mask: PyTree, key: Key | None) -> tuple[Array, Params]:
        f = features(params, x)
        if key is not None:
            kept = jax.random.bernoulli(key, 1 - rate, f.shape)
            f = jnp.where(kept, f / (1 - rate), 0)
        return affine_each(params.head, f), params

    return net._replace(training=Training(apply, key=True))
