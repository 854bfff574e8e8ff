"""Tasks with finite data, held as arrays."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from moml.errors import DataError
from moml.tasks.parts import block_rows
from moml.tasks.sampler import distinct_or_not
from moml.types import Batch, Key, Parts, Tasks


def from_arrays(x: Any, y: Any, sizes: Any = None) -> Tasks:
    """Tasks from arrays x [n, m, ...] and y [n, m, ...]: task i owns rows 0 .. sizes[i] - 1.

    A visit draws different rows where the task has enough of them, else with replacement.

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
            f"x has shape {x.shape}, y {y.shape}: both must start with the same [tasks, samples]"
        )
    n, m = x.shape[:2]
    count = np.full(n, m) if sizes is None else np.asarray(sizes)
    whole = np.issubdtype(count.dtype, np.integer)
    if not whole or count.shape != (n,) or count.min() < 1 or count.max() > m:
        raise DataError(
            f"sizes must be {n} whole numbers from 1 to {m}; given {count.tolist()[:8]}"
        )
    for name, values in {"x": x, "y": y}.items():
        good = np.isfinite(np.asarray(values)).reshape(n, m, -1).all(axis=2)
        bad = np.argwhere(~good & (np.arange(m) < count[:, None]))
        if len(bad):
            task, row = bad[0]
            raise DataError(
                f"{name} of task {task}, row {row} is not finite ({len(bad)} such rows)"
            )
    equal = bool((count == m).all())
    rows = jnp.asarray(count, jnp.int32)

    def draw(key: Key, ids: Int[Array, " tasks"], size: int) -> Int[Array, " tasks size"]:
        keys = jax.random.split(key, len(ids))
        if equal:
            return jax.vmap(lambda key: distinct_or_not(key, m, size))(keys)
        return jax.vmap(lambda key, n: distinct_or_not(key, n, size))(keys, rows[ids])

    def cut(devices: int, which: int) -> Any:
        return tuple(block_rows(values, devices, which) for values in (x, y))

    def full(ids: Int[Array, " tasks"]) -> Batch:
        mask = jax.vmap(lambda size: jnp.arange(m, dtype=jnp.int32) < size)(rows[ids])
        return Batch(x[ids], y[ids], mask)

    sizes_of = lambda ids: rows[ids]
    parts = Parts(cut, _fetch)
    return Tasks(
        n, draw, partial(_fetch, (x, y)), full, int(count.min()), sizes=sizes_of, parts=parts
    )


def _fetch(
    held: Any, ids: Int[Array, "*tasks"], samples: Int[Array, "*tasks_visits_size"]
) -> Batch:
    """The drawn rows of some tasks, of arrays [tasks, samples, ...]."""
    own = ids.reshape(ids.shape + (1,) * (samples.ndim - ids.ndim))
    return Batch(*(values[own, samples] for values in held))
