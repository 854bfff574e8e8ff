"""Memories in half the space: rows as bfloat16, in stochastic rounding.

bfloat16 has 8 bits of a number. To the nearest, an update under 2^-9 of the value would always be
rounded away, and a memory with a small beta would stand still; rounded up or down by chance, it is
right on average. The chance is a hash of the number itself, of its place, and of the count or clock
that each visit moves on. No key is needed, nor an id: a run is the same however it is cut up, on
any number of devices, in RAM and on disk.

Rows are held as bits (uint16) and widened one by one: XLA would convert a store of bfloat16 as a
whole on a CPU, at every step.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, UInt

from moml.algorithms.parts.memory import Ids, parted, put, take, whole
from moml.algorithms.parts.task_map import Rows
from moml.errors import ConfigError
from moml.types import Memory, Personal


def widened(bits: UInt[Array, "*n"]) -> Float[Array, "*n"]:
    """bfloat16 bits as float32; no number is changed."""
    return jax.lax.bitcast_convert_type(bits.astype(jnp.uint32) << 16, jnp.float32)


def rounded(x: Float[Array, "*n"], chance: UInt[Array, "*n"]) -> UInt[Array, "*n"]:
    """float32 to bfloat16 bits: up with a probability of what is cut off, by 16 bits of chance."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    odd = bits | (jnp.isnan(x).astype(jnp.uint32) << 22)  # with low bits alone it would be inf
    return (jnp.where(jnp.isfinite(x), bits + (chance >> 16), odd) >> 16).astype(jnp.uint16)


def mixed(x: UInt[Array, "*n"]) -> UInt[Array, "*n"]:
    """A hash of 32 bits: the finaliser of MurmurHash3."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)


def _bits(x: Array) -> UInt[Array, "*n"]:
    return jax.lax.bitcast_convert_type(x, jnp.uint32)


def _salt(book: PyTree) -> UInt[Array, " tasks"]:
    """A number for each task that changes with its count or clock."""
    first, *others = map(_bits, jax.tree.leaves(book))
    salt = mixed(first)
    for leaf in others:
        salt = mixed(salt * jnp.uint32(31) + leaf)
    return salt


def _packed_like(p: Personal, book: PyTree) -> Personal:
    """Rows of some tasks, rounded; `book` is what is kept of them besides."""
    salts, leaves, at = _salt(book), [], 0
    for leaf in jax.tree.leaves(p):
        flat = leaf.reshape(leaf.shape[0], -1)
        place = mixed(jnp.uint32(at) + jnp.arange(flat.shape[1], dtype=jnp.uint32))
        chance = lambda row, salt, place=place: mixed(mixed(_bits(row) ^ place) ^ salt)
        leaves.append(rounded(flat, jax.vmap(chance)(flat, salts)).reshape(leaf.shape))
        at += flat.shape[1]
    return jax.tree.unflatten(jax.tree.structure(p), leaves)


def _read(store: PyTree, ids: Ids) -> PyTree:
    """The rows of some tasks, widened."""
    bits, book = take(store, ids)
    return type(store)(jax.tree.map(widened, bits), book)


def _write(store: PyTree, ids: Ids, rows: PyTree) -> PyTree:
    """The store with the rows of some tasks, rounded."""
    p, book = rows
    return put(store, ids, type(store)(_packed_like(p, book), book))


ROWS = Rows(_read, _write)  # of a store whose first part are numbers, the second counts or clocks


def packed(memory: Memory) -> Memory:
    """The same memory in half the space; see the top of this file.

    What a visit reads and writes is a store of the visited rows alone, in float32.
    """

    def init(p: Personal) -> PyTree:
        for leaf in jax.tree.leaves(p):
            if leaf.dtype != jnp.float32:
                raise ConfigError(f"bfloat16 memories are of float32 parameters, not {leaf.dtype}")
        common, rows = parted(memory.init(p))
        bits = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.uint16), rows[0])
        return whole(common, type(rows)(bits, rows[1]))

    def few(store: PyTree, ids: Ids) -> tuple[PyTree, Int[Array, " tasks"]]:
        """A store of some tasks, and their ids in it."""
        common, rows = parted(store)
        return whole(common, _read(rows, ids)), jnp.arange(len(ids), dtype=ids.dtype)

    def write(store: PyTree, ids: Ids, u: Personal) -> PyTree:
        common, rows = parted(store)
        return whole(common, _write(rows, ids, parted(memory.write(*few(store, ids), u))[1]))

    return memory._replace(
        init=init,
        read=lambda store, ids: memory.read(*few(store, ids)),
        write=write,
        recall=lambda store, ids: memory.recall(*few(store, ids)),
    )
