"""The border: what a user gives is checked once, here, with one line that says what is wrong."""

import math
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp

from moml.errors import ConfigError, DataError
from moml.types import Hyper, Loss, Params, Tasks


def check_params(params: Params) -> Params:
    """Every leaf an array of one floating type; returned as jax arrays."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise DataError("params has no leaves: there is nothing to learn")
    types = {}
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path) or "params"
        if not isinstance(leaf, float) and not hasattr(leaf, "dtype"):
            raise DataError(f"params leaf {name} is a {type(leaf).__name__}; allowed: float arrays")
        dtype = jnp.asarray(leaf).dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            raise DataError(f"params leaf {name} is {dtype}; allowed: floating-point arrays")
        types[dtype] = name
    if len(types) > 1:
        mixed = ", ".join(f"{name} is {dtype}" for dtype, name in types.items())
        raise DataError(f"params must share one floating type; {mixed}")
    return jax.tree.map(jnp.asarray, params)


def check_loss(loss: Loss, params: Params, tasks: Tasks, k: int) -> None:
    """The loss must take a batch of these tasks and give one floating-point number."""

    def one_batch() -> Any:
        ids = jnp.zeros(1, jnp.int32)
        samples = tasks.fetch(ids, tasks.draw(jax.random.key(0), ids, k))
        return jax.tree.map(lambda x: x[0], samples)

    batch = jax.eval_shape(one_batch)
    shapes = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", batch)
    try:
        value = jax.eval_shape(loss, params, batch)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"the loss cannot be evaluated on a batch {shapes}: {reason}") from error
    single = isinstance(value, jax.ShapeDtypeStruct) and value.shape == ()
    if not single or not jnp.issubdtype(value.dtype, jnp.floating):
        given = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", value)
        raise DataError(f"the loss must return one floating-point number; it returns {given}")


def make_hyper(eta: Any, beta: Any, alpha: Any, gamma: Any, dtype: Any) -> Hyper:
    """Checked hyper-parameters, as arrays of the parameters' own type."""
    for name, value in {"eta": eta, "beta": beta, "alpha": alpha, "gamma": gamma}.items():
        if not isinstance(value, Real) or isinstance(value, bool) or math.isnan(value):
            raise ConfigError(f"{name} must be a number; given {value!r}")
    if not 0 < eta < math.inf:
        raise ConfigError(f"eta must be positive; given {eta:g}")
    if not 0 <= alpha < math.inf:
        raise ConfigError(f"alpha must not be negative; given {alpha:g}")
    for name, value in {"beta": beta, "gamma": gamma}.items():
        if not 0 < value <= 1:
            raise ConfigError(f"{name} must be in (0, 1]; given {value:g}")
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), Hyper(eta, beta, alpha, gamma))
