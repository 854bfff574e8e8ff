"""Tasks with finite data, all in two arrays."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, Shaped
from numpy.typing import ArrayLike

from moml.errors import DataError
from moml.kept import kept
from moml.tasks.parts import (
    block_rows,
    finite_rows,
    named_leaves,
    same_start,
    shapes_of,
    tree_on_device,
)
from moml.tasks.sampler import distinct_or_not
from moml.types import Batch, Key, Tasks

Ids = Int[Array, " tasks"]
Sizes = Int[Array, " n"]
Arrays = tuple[PyTree[Shaped[Array, " n m *_"]], PyTree[Shaped[Array, " n m *_"]]]


def from_arrays(
    x: ArrayLike | PyTree, y: ArrayLike | PyTree, sizes: ArrayLike | Sequence[int] | None = None
) -> Tasks:
    """Tasks from arrays: task i owns the rows x[i, j], y[i, j] for j < sizes[i].

    A visit draws distinct rows where the task has enough of them, else with replacement.

    Parameters
    ----------
    x, y
        Inputs [n, m, ...] and targets [n, m, ...] of n tasks with at most m samples; either may be
        a pytree of such arrays, such as {"image": ..., "age": ...}. For a list of arrays of unequal
        length see `moml.from_lists`.
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
    x, y = tree_on_device("x", x), tree_on_device("y", y)
    start = same_start(x, y, 2)
    if start is None:
        raise DataError(
            "x and y must start with the same [tasks, samples]; got shapes "
            f"{shapes_of(x)}, {shapes_of(y)}"
        )
    n, m = start
    count = np.full(n, m) if sizes is None else np.asarray(sizes)
    whole = np.issubdtype(count.dtype, np.integer)
    if not whole or count.shape != (n,) or count.min() < 1 or count.max() > m:
        raise DataError(f"sizes must be {n} whole numbers from 1 to {m}; got {count.tolist()[:8]}")
    for name, values in named_leaves(x=x, y=y):
        bad = np.argwhere(~finite_rows(values, 2) & (np.arange(m) < count[:, None]))
        if len(bad):
            task, row = bad[0]
            many = f"{len(bad)} such rows"
            raise DataError(f"{name} must be finite; task {task}, row {row} is not ({many})")
    return Tasks(
        n, drawn_rows(m if (count == m).all() else None), _fetch, jnp.asarray(count, jnp.int32),
        (x, y), _full, _cut, sized=True, least=int(count.min()), most=int(count.max()),
    )  # fmt: skip


@kept
def drawn_rows(each: int | None) -> Callable[[Sizes, Key, Ids, int], Int[Array, "tasks size"]]:
    """The draw of rows of tasks that have `each` rows; None: as many as their sizes say."""

    def draw(sizes: Sizes, key: Key, ids: Ids, size: int) -> Int[Array, "tasks size"]:
        keys = jax.random.split(key, len(ids))
        if each is not None:
            return jax.vmap(lambda key: distinct_or_not(key, each, size))(keys)
        return jax.vmap(lambda key, n: distinct_or_not(key, n, size))(keys, sizes[ids])

    return draw


def _full(sizes: Sizes, arrays: Arrays, ids: Ids) -> Batch:
    """All rows of some tasks."""
    m = jax.tree.leaves(arrays)[0].shape[1]
    mask = jax.vmap(lambda size: jnp.arange(m, dtype=jnp.int32) < size)(sizes[ids])
    x, y = jax.tree.map(lambda values: values[ids], arrays)
    return Batch(x, y, mask)


def _cut(arrays: Arrays, devices: int, which: int) -> tuple[PyTree, ...]:
    """The rows of one device's tasks."""
    return jax.tree.map(lambda values: block_rows(values, devices, which), arrays)


def _fetch(
    arrays: Arrays, ids: Int[Array, "*tasks"], samples: Int[Array, "*tasks_visits_size"]
) -> Batch:
    """The drawn rows of some tasks."""
    task = jnp.expand_dims(ids, range(ids.ndim, samples.ndim))
    return Batch(*jax.tree.map(lambda values: values[task, samples], arrays))
