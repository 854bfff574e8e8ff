"""How one of many devices goes through the tasks of a step: through those that it owns.

Whatever is drawn is drawn by all devices alike. Each picks the tasks of its block of ids, and what
leaves it is a sum:

    sum_i x_i  =  sum over devices d of  sum over visited i with i // block = d of  x_i
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from moml.algorithms.rounds import where
from moml.algorithms.visits import Each, One, Rows, added
from moml.tasks.sampler import fetch
from moml.types import Memory, Tasks, Visit

AXIS = "tasks"  # of the mesh


def owners(tasks: Tasks, held: Any, devices: int, block: int, at_once: int | None = None) -> Each:
    """A device's share of a visit, and the sum over all devices; inside `shard_map` alone.

    The device has `block` tasks with the arrays `held` (see `Parts`) and reads and writes its own
    block of a store. It takes ceil(B / devices) tasks at a time, or `at_once` if that is fewer, in
    as many turns as it owns tasks for; places left over in a turn count for nothing. Tasks without
    end have no owner: they are dealt out by their place in the visit.
    """

    def each(one: One, rows: Rows | Memory, store: Any, visit: Visit) -> tuple[Any, Any]:
        count = len(visit.ids)
        size = min(_share(count, devices), at_once or count)
        me = jax.lax.axis_index(AXIS)
        if tasks.n is None:
            mine = jnp.arange(count, dtype=jnp.int32) // _share(count, devices) == me
        else:
            mine = visit.ids // block == me
        own = jnp.sum(mine, dtype=jnp.int32)
        order = jnp.argsort(~mine, stable=True)  # those that are mine, then the others
        place = jnp.arange(size, dtype=jnp.int32)

        def turn(store: Any, done: Int[Array, ""]) -> tuple[Any, Any]:
            real = done + place < own
            at = order[jnp.where(real, done + place, 0)]  # left over: the first once more
            some = jax.tree.map(lambda x: x[at], visit)
            local = some.ids - block * me
            here = tasks._replace(fetch=_local(tasks, held, block * me))
            each, kept = jax.vmap(one)(rows.read(store, local), fetch(some, here))
            total = added(where(real, each, optax.tree.zeros_like(each)))
            # What is past the last row is not written.
            return total, rows.write(store, jnp.where(real, local, block + place), kept)

        def more(carry: Any) -> tuple[Any, Any, Any]:
            done, total, store = carry
            new, store = turn(store, done)
            return done + size, optax.tree.add(total, new), store

        zero = jnp.zeros((), jnp.int32)
        like = jax.eval_shape(lambda store: turn(store, zero)[0], store)
        start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        left = lambda carry: carry[0] < own
        _, total, store = jax.lax.while_loop(left, more, (zero, start, store))
        return summed(total), store

    return each


def _share(count: int, devices: int) -> int:
    return -(-count // devices)


def _local(tasks: Tasks, held: Any, first: Int[Array, ""]) -> Callable[[Any, Any], Any]:
    parts = tasks.parts
    if parts is None:
        return tasks.fetch
    return lambda ids, drawn: parts.fetch(held, ids - first, drawn)


def summed(total: Any) -> Any:
    """The sum over devices, leaf by leaf, in one all-reduce of one vector (of each type)."""
    leaves, tree = jax.tree.flatten(total)
    out = list(leaves)
    for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):
        which = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
        vector = jnp.concatenate([leaves[i].ravel() for i in which])
        ends = [sum(leaves[i].size for i in which[:j]) for j in range(1, len(which))]
        pieces = jnp.split(jax.lax.psum(vector, AXIS), ends)
        for i, piece in zip(which, pieces, strict=True):
            out[i] = piece.reshape(leaves[i].shape)
    return jax.tree.unflatten(tree, out)
