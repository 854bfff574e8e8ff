"""How one of many devices goes through the tasks of a step: those that it owns.

All devices make the same draws. Each takes the tasks of its block of ids, and what leaves it is a
sum:

    sum_i x_i  =  sum over devices d of  sum over visited i with i // block = d of  x_i
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Int, PyTree

from moml.algorithms.federated.client import where
from moml.algorithms.parts.task_map import One, Rows, TaskMap, added
from moml.tasks.parts import block_of
from moml.tasks.sampler import fetch
from moml.types import Memory, TaskBatch, Tasks

AXIS = "tasks"  # of the mesh


def owners(tasks: Tasks, data: PyTree, devices: int, at_once: int | None = None) -> TaskMap:
    """Return a device's share of a visit and the sum over all devices; for use in `shard_map`.

    The device has the `data` of its tasks (see `Tasks.cut`), and reads and writes its block of a
    store. It takes ceil(B / devices) tasks at a time, or `at_once` where that is fewer, in as
    many turns as it has tasks for; places left over in the last turn are masked. Tasks of a stream
    have no owner: they are shared out by their place in the visit. No task is in a visit twice.
    """
    block = 0 if tasks.n is None else block_of(tasks.n, devices)

    def each(
        one: One, rows: Rows | Memory, store: PyTree, visit: TaskBatch
    ) -> tuple[PyTree, PyTree]:
        count, me = len(visit.ids), jax.lax.axis_index(AXIS)
        share = block_of(count, devices)
        size = min(share, at_once or share)
        place = lambda size: jnp.arange(size, dtype=jnp.int32)
        mine = place(count) // share == me if tasks.n is None else visit.ids // block == me
        own = jnp.sum(mine, dtype=jnp.int32)
        order = jnp.argsort(~mine, stable=True)  # my tasks, then the others
        here = replace(tasks, fetch_from=_local(tasks, data, block * me))

        def turn(
            done: Int[Array, ""],
        ) -> tuple[Bool[Array, " size"], TaskBatch, Int[Array, " size"]]:
            """Return which places of a turn are real, their tasks and their rows of the store."""
            real = done + place(size) < own
            at = order[jnp.where(real, done + place(size), 0)]  # left over: the first once more
            some = jax.tree.map(lambda x: x[at], visit)
            return real, some, jnp.where(real, some.ids - block * me, block + place(size))

        def visited(near: PyTree, done: Int[Array, ""]) -> tuple[PyTree, PyTree]:
            real, some, _ = turn(done)
            each, kept = jax.vmap(one)(near, fetch(some, here))
            return added(where(real, each, optax.tree.zeros_like(each))), kept

        def more(carry: PyTree) -> PyTree:
            done, total, store, near = carry
            new, kept = visited(near, done)
            store = rows.write(store, turn(done)[2], kept)  # past the last row: not written
            near = rows.read(store, turn(done + size)[2])
            return done + size, optax.tree.add(total, new), store, near

        zero = jnp.zeros((), jnp.int32)
        near = rows.read(store, turn(zero)[2])
        most = share if tasks.n is None else min(block, count)
        if most <= size:  # nobody has a second turn
            total, kept = visited(near, zero)
            return summed(total), rows.write(store, turn(zero)[2], kept)
        # A turn's rows are read before it begins: XLA would copy a store that it reads in places.
        like = jax.eval_shape(lambda near: visited(near, zero)[0], near)
        start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        left = lambda carry: carry[0] < own
        _, total, store, _ = jax.lax.while_loop(left, more, (zero, start, store, near))
        return summed(total), store

    return each


def _local(
    tasks: Tasks, data: PyTree, first: Int[Array, ""]
) -> Callable[[PyTree, Int[Array, "*tasks"], PyTree], PyTree]:
    if tasks.cut is None:
        return tasks.fetch_from
    return lambda _, ids, drawn: tasks.fetch_from(data, ids - first, drawn)


def summed(total: PyTree) -> PyTree:
    """Return the sum over devices, by one all-reduce of one vector for each dtype."""
    leaves, tree = jax.tree.flatten(total)
    for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):
        which = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
        vector, pieces_of = ravel_pytree([leaves[i] for i in which])
        for i, piece in zip(which, pieces_of(jax.lax.psum(vector, AXIS)), strict=True):
            leaves[i] = piece
    return jax.tree.unflatten(tree, leaves)
