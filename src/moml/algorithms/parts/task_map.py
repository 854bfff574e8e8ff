"""How a step goes through the tasks that it visits: side by side, or some at a time.

What one task does is a function (row, visit of that task) -> (what is summed, the row it keeps).
Whatever goes through the tasks of a step has the signature of `side_by_side`, an `Each`; other
runtimes bring their own, where every device goes through the tasks that it owns.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from moml.types import Memory, Visit

One = Callable[[Any, Visit], tuple[Any, Any]]


class Rows(NamedTuple):
    """How a store's rows are read and written, by ids; a `Memory` has both."""

    read: Callable[[Any, Any], Any]
    write: Callable[[Any, Any, Any], Any]


Each = Callable[[One, Any, Any, Visit], tuple[Any, Any]]  # one, rows, store, visit


def side_by_side(one: One, rows: Rows | Memory, store: Any, visit: Visit) -> tuple[Any, Any]:
    """The sum over all visited tasks, and the store with what they keep."""
    each, kept = jax.vmap(one)(rows.read(store, visit.ids), visit)
    return added(each), rows.write(store, visit.ids, kept)


def added(rows: Any) -> Any:
    """The sum over tasks, leaf by leaf."""
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), rows)


def over(count: Any, total: Any) -> Any:
    """A sum over `count` tasks becomes their mean."""
    return jax.tree.map(lambda x: x / jnp.asarray(count, x.dtype), total)


def in_slices(size: int) -> Each:
    """`size` tasks side by side, then the next ones, in the last slice those that are left."""

    def each(one: One, rows: Rows | Memory, store: Any, visit: Visit) -> tuple[Any, Any]:
        count = len(visit.ids)
        if size >= count:
            return side_by_side(one, rows, store, visit)

        def some(carry: Any, visit: Visit) -> tuple[Any, None]:
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
