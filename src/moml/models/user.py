"""A user's own network, in whichever form it comes."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from moml.errors import ConfigError
from moml.models.networks import Model, from_equinox
from moml.models.table import squash
from moml.types import Key

Build = Callable[..., Any]  # inputs, outputs[, key] -> Model, equinox module or flax module


def as_model(build: Build, inputs: int, outputs: int) -> Model:
    """What `build(inputs, outputs)` gives, as functions of parameters.

    An equinox module may be asked for with a `key`, so that members begin differently.

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
        return Model(lambda key: from_equinox(make(key))[0], from_equinox(made)[1])
    if callable(getattr(made, "init", None)) and callable(getattr(made, "apply", None)):  # flax

        def init(key: Key) -> Any:
            return made.init(key, jnp.zeros((1, inputs)))

        return Model(init, made.apply)
    given = type(made).__name__
    raise ConfigError(
        f"the model's function must return a moml Model, an equinox or a flax module; given {given}"
    )


def bounded(model: Model) -> Model:
    """The same network, of inputs that no outlier can reach."""
    return Model(model.init, lambda params, x: model.predict(params, squash(x)))


def check_model(model: Model, inputs: int, outputs: int) -> None:
    """Refuse a network whose answers are not [rows, outputs]."""
    rows = jax.ShapeDtypeStruct((2, inputs), jnp.result_type(float))
    try:
        params = jax.eval_shape(model.init, jax.random.key(0))
        shape = jax.eval_shape(model.predict, params, rows).shape
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        raise ConfigError(f"the model cannot predict from {inputs} inputs: {words}") from error
    if shape != (2, outputs):
        raise ConfigError(f"the model gives {shape} for 2 rows; it must be (2, {outputs})")
