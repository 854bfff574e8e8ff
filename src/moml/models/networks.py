"""Networks as functions of their parameters.

A model is its parameters (a pytree of arrays) and pure functions of them, so that the algorithms
never see a class. `from_equinox` splits any equinox module that way, ours or a user's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from moml.types import Key, Params


class Model(NamedTuple):
    """A network as functions of its parameters."""

    init: Callable[[Key], Params]
    predict: Callable[[Params, Any], Any]  # params, x [K, ...] -> [K, out]
    features: Callable[[Params, Any], Any] | None = None  # what its linear head is given


def mlp(*sizes: int, activation: Callable = jax.nn.relu) -> Model:
    """A fully connected network, `mlp(1, 40, 40, 1)` for the paper's sine regression.

    Inputs are flattened: `mlp(784, 40, 40, 20)` takes images [K, 28, 28, 1].

    >>> import jax.numpy as jnp
    >>> net = mlp(1, 40, 40, 1)
    >>> net.predict(net.init(jax.random.key(0)), jnp.zeros((5, 1))).shape
    (5, 1)
    """
    import equinox as eqx

    from moml.models.modules import MLP

    make = lambda key: MLP(sizes, activation, key)
    _, static = eqx.partition(eqx.filter_eval_shape(make, jax.random.key(0)), _is_array)
    whole = lambda params: eqx.combine(params, static)
    flat = lambda x: x if x.ndim == 2 else x.reshape(len(x), -1)
    return Model(
        init=lambda key: eqx.filter(make(key), eqx.is_inexact_array),
        predict=lambda params, x: jax.vmap(whole(params))(flat(x)),
        features=lambda params, x: jax.vmap(whole(params).features)(flat(x)),
    )


def shifted(net: Model, mean: float, std: float) -> Model:
    """The same network, given (x - mean) / std.

    >>> import jax.numpy as jnp
    >>> net = Model(lambda key: 2.0, lambda w, x: w * x)
    >>> shifted(net, 1.0, 0.5).predict(2.0, jnp.array([1.0, 2.0])).tolist()
    [0.0, 4.0]
    """
    inner = net.features
    return Model(
        net.init,
        lambda params, x: net.predict(params, (x - mean) / std),
        None if inner is None else lambda params, x: inner(params, (x - mean) / std),
    )


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def from_equinox(module: Any) -> tuple[Params, Callable[[Params, Any], Any]]:
    """An equinox module as (params, predict): `jax.grad` needs arrays alone.

    >>> import equinox as eqx
    >>> import jax.numpy as jnp
    >>> params, predict = from_equinox(eqx.nn.Linear(2, 3, key=jax.random.key(0)))
    >>> predict(params, jnp.zeros((5, 2))).shape
    (5, 3)
    """
    import equinox as eqx

    params, static = eqx.partition(module, eqx.is_inexact_array)
    return params, lambda params, x: jax.vmap(eqx.combine(params, static))(x)
