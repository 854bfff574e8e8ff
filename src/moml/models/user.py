"""A user's network: a moml Model, an equinox module or a flax module."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from moml.errors import ConfigError, reason
from moml.models.adapters import from_equinox, from_linen
from moml.models.networks import Model
from moml.models.table import squash

Build = Callable[..., Any]  # inputs, outputs[, key] -> Model, equinox module or flax module


def as_model(build: Build, inputs: int, outputs: int) -> Model:
    """The network that `build(inputs, outputs)` returns, as functions of its parameters.

    A `build` with a parameter `key` gives the members of an ensemble different initial parameters.

    >>> import equinox as eqx
    >>> model = as_model(lambda i, o, key: eqx.nn.Linear(i, o, key=key), 3, 1)
    >>> model.predict(model.init(jax.random.key(0)), jnp.zeros((5, 3))).shape
    (5, 1)
    """
    import equinox as eqx

    keyed = "key" in inspect.signature(build).parameters
    make = lambda key: build(inputs, outputs, **({"key": key} if keyed else {}))
    made = make(jax.random.key(0))
    if isinstance(made, Model):
        return made
    if isinstance(made, eqx.Module):
        return from_equinox(make)
    if callable(getattr(made, "init", None)) and callable(getattr(made, "apply", None)):  # flax
        return from_linen(made, jnp.zeros((1, inputs)))
    given = type(made).__name__
    raise ConfigError(
        f"the model's function must return a moml Model, an equinox or a flax module; got {given}"
    )


def bounded(model: Model) -> Model:
    """The same network with bounded inputs, see `squash`."""
    return Model(model.init, lambda params, x: model.predict(params, squash(x)))


def check_model(model: Model, inputs: int, outputs: int) -> None:
    """Refuse a network whose predictions are not [rows, outputs]."""
    rows = jax.ShapeDtypeStruct((2, inputs), jnp.result_type(float))
    try:
        params = jax.eval_shape(model.init, jax.random.key(0))
        shape = jax.eval_shape(model.predict, params, rows).shape
    except Exception as error:
        raise ConfigError(
            f"the model cannot predict from {inputs} inputs: {reason(error)}"
        ) from error
    if shape != (2, outputs):
        raise ConfigError(f"the model must give (2, {outputs}) for 2 rows; got {shape}")
