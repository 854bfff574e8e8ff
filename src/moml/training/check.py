"""Validation of parameters and losses: one line that says what must hold, and what was given."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from moml.errors import ConfigError, DataError, MomlError, MomlWarning, reason
from moml.models.wrapped import takes_key
from moml.runtime.account import nbytes
from moml.runtime.memory_budget import free_bytes
from moml.runtime.simulate import samples_per_step
from moml.tasks.parts import as_held
from moml.tasks.sampler import draw, fetch, set_of, specs_in
from moml.types import Loss, Params, Samples, Tasks

MANY = 10**6  # samples of a step whose bytes are counted


def check_params(params: Params) -> Params:
    """Every leaf an array of a floating type; returned as jax arrays."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise DataError("params must have leaves to learn; got no leaves")
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path) or "params"
        if not isinstance(leaf, float) and not hasattr(leaf, "dtype"):
            raise DataError(f"params leaf {name} must be a float array; got {type(leaf).__name__}")
        dtype = jnp.asarray(leaf).dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            raise DataError(f"params leaf {name} must be a floating-point array; got {dtype}")
    return jax.tree.map(jnp.asarray, params)


def check_held(name: str, tree: PyTree) -> None:
    """Raise for arrays of numpy that are no numbers, or have integers that JAX would change."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if isinstance(leaf, np.ndarray | np.generic):
            as_held(f"{name}{jax.tree_util.keystr(path)}", leaf)


def check_samples(needs: PyTree, tasks: Tasks) -> None:
    """Raise for more samples in a step than memory holds; warn where those of a task repeat.

    `needs` is a tree of `SampleSpec`.
    """
    drawn = samples_per_step(needs, tasks) * tasks.ways
    if drawn >= 2**31:
        raise ConfigError(f"samples drawn at once must be below 2^31, see k, shots; got {drawn:,}")
    if drawn > MANY:
        one = lambda key: fetch(draw(key, needs, tasks), tasks)
        size, free = nbytes(jax.eval_shape(one, jax.random.key(0))), free_bytes()
        if free is not None and size > free:
            sizes = f"{free / 1e9:,.1f} GB of free memory; got {size / 1e9:,.1f} GB"
            raise ConfigError(f"samples drawn at once, see k, shots, must fit into {sizes}")
    most = max(max(set_of(need), need.restart) for need in specs_in(needs))
    if tasks.least is not None and most > tasks.least:
        of = "a class" if tasks.ways > 1 else "a task"
        text = f"a visit draws {most} samples of {of}, the smallest has {tasks.least}"
        warnings.warn(f"{text}: samples repeat; see k", MomlWarning, stacklevel=3)


def check_loss(loss: Loss, params: Params, tasks: Tasks, k: int, *, training: bool = True) -> None:
    """The loss must take a batch of these tasks and give one floating-point number.

    In `training`, a loss that takes a key needs tasks that draw one.
    """
    check_held("tasks", tasks)

    def one_batch() -> Samples:
        ids = jnp.zeros(1, jnp.int32)
        samples = tasks.fetch(ids, tasks.draw(jax.random.key(0), ids, k))
        return jax.tree.map(lambda x: x[0], samples)

    try:
        batch = jax.eval_shape(one_batch)
    except MomlError:
        raise
    except Exception as error:
        raise DataError(f"tasks must give samples, see moml.Tasks: {reason(error)}") from error
    if training and takes_key(loss) and getattr(batch, "bits", None) is None:
        raise ConfigError("a loss with a key needs keyed tasks: moml.tasks.keyed(tasks)")
    shapes = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", batch)
    try:
        value = jax.eval_shape(loss, params, batch)
    except Exception as error:
        raise DataError(
            f"the loss cannot be evaluated on a batch {shapes}: {reason(error)}"
        ) from error
    single = isinstance(value, jax.ShapeDtypeStruct) and value.shape == ()
    if not single or not jnp.issubdtype(value.dtype, jnp.floating):
        given = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", value)
        raise DataError(f"the loss must return one floating-point number; got {given}")
