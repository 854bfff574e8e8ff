"""Tasks with finite data, all in two arrays."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped
from numpy.typing import ArrayLike

from moml.errors import DataError
from moml.tasks.parts import block_rows
from moml.tasks.sampler import distinct_or_not
from moml.types import Batch, Key, Parts, Tasks

Arrays = tuple[Shaped[Array, " n m *x"], Shaped[Array, " n m *y"]]


def from_arrays(
    x: ArrayLike | Array, y: ArrayLike | Array, sizes: ArrayLike | Sequence[int] | None = None
) -> Tasks:
    """Tasks from arrays: task i owns the rows x[i, j], y[i, j] for j < sizes[i].

    A visit draws distinct rows where the task has enough of them, else with replacement.

    Parameters
    ----------
    x, y
        Inputs [n, m, ...] and targets [n, m, ...] of n tasks with at most m samples.
    sizes
        The number of samples of each task; by default m.

    Returns
    -------
    Tasks
        A family of n tasks.

    >>> import numpy as np
    >>> tasks = from_arrays(np.zeros((3, 8, 2)), np.zeros((3, 8, 1)))
    >>> tasks.n, tasks.draw(jax.random.key(0), jnp.array([0, 2]), 5).shape
    (3, (2, 5))
    """
    try:
        x, y = jnp.asarray(x), jnp.asarray(y)
    except (TypeError, ValueError) as error:
        raise DataError(f"x and y must be arrays of numbers: {error}") from error
    if x.ndim < 2 or y.ndim < 2 or x.shape[:2] != y.shape[:2] or 0 in x.shape[:2]:
        raise DataError(
            f"x and y must start with the same [tasks, samples]; got shapes {x.shape}, {y.shape}"
        )
    n, m = x.shape[:2]
    count = np.full(n, m) if sizes is None else np.asarray(sizes)
    whole = np.issubdtype(count.dtype, np.integer)
    if not whole or count.shape != (n,) or count.min() < 1 or count.max() > m:
        raise DataError(f"sizes must be {n} whole numbers from 1 to {m}; got {count.tolist()[:8]}")
    for name, values in {"x": x, "y": y}.items():
        good = np.isfinite(np.asarray(values)).reshape(n, m, -1).all(axis=2)
        bad = np.argwhere(~good & (np.arange(m) < count[:, None]))
        if len(bad):
            task, row = bad[0]
            many = f"{len(bad)} such rows"
            raise DataError(f"{name} must be finite; task {task}, row {row} is not ({many})")
    equal = bool((count == m).all())
    rows = jnp.asarray(count, jnp.int32)

    def draw(key: Key, ids: Int[Array, " tasks"], size: int) -> Int[Array, " tasks size"]:
        keys = jax.random.split(key, len(ids))
        if equal:
            return jax.vmap(lambda key: distinct_or_not(key, m, size))(keys)
        return jax.vmap(lambda key, n: distinct_or_not(key, n, size))(keys, rows[ids])

    def cut(devices: int, which: int) -> tuple[np.ndarray, np.ndarray]:
        return block_rows(x, devices, which), block_rows(y, devices, which)

    def full(ids: Int[Array, " tasks"]) -> Batch:
        mask = jax.vmap(lambda size: jnp.arange(m, dtype=jnp.int32) < size)(rows[ids])
        return Batch(x[ids], y[ids], mask)

    fetch, parts = partial(_fetch, (x, y)), Parts(cut, _fetch)
    least = int(count.min())
    return Tasks(n, draw, fetch, full, least, sizes=lambda ids: rows[ids], parts=parts)


def _fetch(
    arrays: Arrays, ids: Int[Array, "*tasks"], samples: Int[Array, "*tasks_visits_size"]
) -> Batch:
    """The drawn rows of some tasks."""
    task = ids.reshape(ids.shape + (1,) * (samples.ndim - ids.ndim))
    return Batch(*(values[task, samples] for values in arrays))
