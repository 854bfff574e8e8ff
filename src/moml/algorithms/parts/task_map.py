"""How a step goes through the tasks that it visits: side by side, or some at a time.

What one task does is a function (row, visit of that task) -> (what is summed, the row it keeps).
Whatever goes through the tasks of a step has the signature of `side_by_side`, `TaskMap`; other
runtimes bring their own, where every device goes through the tasks that it owns.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

from moml.types import Memory, TaskBatch

Store = PyTree  # rows of all tasks, or () where nothing is kept
One = Callable[[PyTree, TaskBatch], tuple[PyTree, PyTree]]


class Rows(NamedTuple):
    """How a store's rows are read and written, by ids; a `Memory` has both."""

    read: Callable[[Store, Array], PyTree]
    write: Callable[[Store, Array, PyTree], Store]


# one, rows, store, visit -> the sum over tasks, the store
TaskMap = Callable[[One, Rows | Memory, Store, TaskBatch], tuple[PyTree, Store]]


def side_by_side(
    one: One, rows: Rows | Memory, store: Store, visit: TaskBatch
) -> tuple[PyTree, Store]:
    """The sum over all visited tasks, and the store with what they keep."""
    each, kept = jax.vmap(one)(rows.read(store, visit.ids), visit)
    return added(each), rows.write(store, visit.ids, kept)


def in_batches(one: Callable[[PyTree], PyTree], xs: PyTree, most: int) -> PyTree:
    """The results of `one` along the first axis of `xs`, at most `most` side by side.

    The batches have equal sizes, the last one padded: a remainder would be compiled by itself.

    >>> in_batches(lambda i: i * i, jnp.arange(5), 2).tolist()
    [0, 1, 4, 9, 16]
    """
    n = len(jax.tree.leaves(xs)[0])
    batches = -(-n // most)
    if batches == 1:
        return jax.vmap(one)(xs)
    at = jnp.minimum(jnp.arange(batches * -(-n // batches)), n - 1).reshape(batches, -1)
    some = lambda at: jax.vmap(one)(jax.tree.map(lambda x: x[at], xs))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n], jax.lax.map(some, at))


def added(rows: PyTree) -> PyTree:
    """The sum over tasks, leaf by leaf."""
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), rows)


def mean_from_sum(count: ArrayLike, total: PyTree) -> PyTree:
    """A sum over `count` tasks becomes their mean."""
    return jax.tree.map(lambda x: x / jnp.asarray(count, x.dtype), total)


def mean(rows: PyTree) -> PyTree:
    """The mean over tasks, leaf by leaf."""
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), rows)


def norm(tree: PyTree) -> Float[Array, ""]:
    """The Euclidean norm, as products of vectors: XLA makes many small sums of the other form."""
    tree = in_common_type(tree)
    return jnp.sqrt(optax.tree.vdot(tree, tree))


def common_type(tree: PyTree) -> jnp.dtype:
    """The type that holds the numbers of all leaves."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*jax.tree.leaves(tree))


def in_common_type(tree: PyTree) -> PyTree:
    """The leaves in one type; as they are where they have one."""
    return optax.tree.cast(tree, common_type(tree))


def in_slices(size: int) -> TaskMap:
    """`size` tasks side by side, then the next ones, in the last slice those that are left."""

    def each(one: One, rows: Rows | Memory, store: Store, visit: TaskBatch) -> tuple[PyTree, Store]:
        count = len(visit.ids)
        if size >= count:
            return side_by_side(one, rows, store, visit)

        def some(carry: PyTree, visit: TaskBatch) -> tuple[PyTree, None]:
            total, store = carry
            more, store = side_by_side(one, rows, store, visit)
            return (optax.tree.add(total, more), store), None

        whole = count - count % size
        cut = lambda x: x[:whole].reshape(-1, size, *x.shape[1:])
        first = jax.tree.map(lambda x: x[:size], visit)
        like = jax.eval_shape(lambda s: side_by_side(one, rows, s, first)[0], store)
        start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        carry, _ = jax.lax.scan(some, (start, store), jax.tree.map(cut, visit))
        if whole < count:
            carry, _ = some(carry, jax.tree.map(lambda x: x[whole:], visit))
        return carry

    return each
