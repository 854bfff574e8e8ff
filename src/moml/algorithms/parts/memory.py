"""Memories: what is kept of each task between its visits, and how a visit moves it.

Rows hold only the leaves that adapt. Every memory is a `Memory`: `tick` is what a step does to all
tasks, `mix` what a visit does to one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from moml.algorithms.parts.task_map import Rows, common_type
from moml.errors import ConfigError
from moml.types import Hyper, Memory, Personal, Scalar

Ids = Int[Array, " tasks"]


def rows_like(p: Personal, n: int) -> Personal:
    """n rows of zeros, each shaped like p."""
    return jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), p)


def take(rows: PyTree, ids: Ids) -> PyTree:
    """The rows of some tasks; past the last row that one."""
    return jax.tree.map(lambda r: r.at[ids].get(mode="clip"), rows)


def put(rows: PyTree, ids: Ids, values: PyTree) -> PyTree:
    """The rows with those of some tasks replaced, in place where the buffer is donated.

    Ids are distinct; what is past the last row is not written.
    """
    return jax.tree.map(
        lambda r, v: r.at[ids].set(v, mode="drop", unique_indices=True), rows, values
    )


ROWS = Rows(take, put)  # of a store that holds rows as they are


def moving_average(u: Personal, v: Personal, beta: Scalar) -> Personal:
    """(1 - beta) u + beta v."""
    return optax.incremental_update(v, u, beta)


def none() -> Memory:
    """No memory: u' = v (MAML and its kin)."""
    return Memory(
        init=lambda p: (),
        tick=lambda store, w, hyper: store,
        read=lambda store, ids: (),
        mix=lambda row, w, v, hyper: v,
        write=lambda store, ids, u: store,
        recall=_nothing,
    )


def _nothing(store: PyTree, ids: Ids) -> PyTree:
    raise ConfigError("this method keeps no memory: there is nothing to recall")


class Ema(NamedTuple):
    """v1's store, and one row of it: the averages, and how often each task was visited."""

    u: Personal
    visits: Int[Array, " *n"]


def first_touch(visits: Int[Array, ""], beta: Scalar) -> Scalar:
    """The weight of the newest point: beta, or 1 at a task's first visit, so that u' = v."""
    return jnp.where(visits > 0, beta, jnp.ones_like(beta))


def ema(n: int) -> Memory:
    """MOML v1: a visited task takes u' = (1 - beta) u + beta v, the others wait.

    At its first visit a task takes u' = v, the rule of the paper's proof.
    """

    def mix(row: Ema, w: Personal, v: Personal, hyper: Hyper) -> Personal:
        return moving_average(row.u, v, first_touch(row.visits, hyper.beta))  # Eq. (v1)

    def write(store: Ema, ids: Ids, u: Personal) -> Ema:
        return Ema(put(store.u, ids, u), put(store.visits, ids, take(store.visits, ids) + 1))

    return Memory(
        init=lambda p: Ema(rows_like(p, n), jnp.zeros(n, jnp.int32)),
        tick=lambda store, w, hyper: store,
        read=take,
        mix=mix,
        write=write,
        recall=lambda store, ids: (take(store.u, ids), store.visits[ids] > 0),
    )


def _debiased_mix(p_visit: float) -> PyTree:
    """Eq. (v2), sampled, over the idle move that `tick` has made: u + (beta / p_i)(v - w)."""

    def mix(u: Personal, w: Personal, v: Personal, hyper: Hyper) -> Personal:
        return jax.tree.map(lambda u, v, w: u + hyper.beta / p_visit * (v - w), u, v, w)

    return mix


def debiased_ema_direct(n: int, p_visit: float) -> Memory:
    """MOML v2 as printed: every step moves all n memories, O(n d). The lazy form's yardstick."""

    def tick(store: Personal, w: Personal, hyper: Hyper) -> Personal:
        move = lambda u: moving_average(u, w, hyper.beta)  # Eq. (v2), idle: (1-beta) u + beta w
        return jax.vmap(move)(store)

    return Memory(
        init=lambda p: jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)).copy(), p),
        tick=tick,
        read=take,
        mix=_debiased_mix(p_visit),
        write=put,
        recall=lambda store, ids: (take(store, ids), jnp.ones_like(ids, bool)),
    )


class Clock(NamedTuple):
    """A sum of log(1 - beta) in two floats, high and low part: one alone drifts in float32."""

    high: Float[Array, " *n"]
    low: Float[Array, " *n"]


def _advance(clock: Clock, amount: Scalar) -> Clock:
    """Knuth's two-sum: what the addition rounds away goes to the low part."""
    high = clock.high + amount
    back = high - clock.high
    lost = (clock.high - (high - back)) + (amount - back)
    return Clock(high, clock.low + lost)


class Lazy(NamedTuple):
    """v2's lazy store: u_i = m + offset_i * exp(now - touched_i)."""

    m: Personal
    now: Clock
    offset: Personal
    touched: Clock


def debiased_ema(n: int, p_visit: float) -> Memory:
    """MOML v2 in O(B d) a step, equal to the direct form.

    An idle task moves by u' = (1-beta) u + beta w, and so does the running mean m. Their
    difference therefore only shrinks, by (1 - beta) a step: it is stored as of the last touch,
    with the sum of log(1 - beta) then, and u is rebuilt on demand. Memories start at u = w_0.
    At beta = 1 the factor is the smallest normal float instead of 0, and the offset vanishes.
    """

    def init(p: Personal) -> Lazy:
        dtype = common_type(p)
        zero, zeros = jnp.zeros((), dtype), jnp.zeros(n, dtype)
        return Lazy(p, Clock(zero, zero), rows_like(p, n), Clock(zeros, zeros))

    def tick(store: Lazy, w: Personal, hyper: Hyper) -> Lazy:
        keep = jnp.maximum(1 - hyper.beta, jnp.finfo(store.now.high.dtype).tiny)
        m = moving_average(store.m, w, hyper.beta)
        return store._replace(m=m, now=_advance(store.now, jnp.log(keep)))

    def read(store: Lazy, ids: Ids) -> Personal:
        then = take(store.touched, ids)
        shrink = jnp.exp((store.now.high - then.high) + (store.now.low - then.low))
        moved = lambda s: lambda m, o: m + s.astype(o.dtype) * o
        rebuild = lambda offset, s: jax.tree.map(moved(s), store.m, offset)
        return jax.vmap(rebuild)(take(store.offset, ids), shrink)

    def write(store: Lazy, ids: Ids, u: Personal) -> Lazy:
        offset = jax.vmap(lambda u: optax.tree.sub(u, store.m))(u)
        # The sum with 0 * (what was read) makes the write wait for the read; without it XLA copies
        # all n clocks at every step.
        now = jax.tree.map(lambda now, then: now + 0 * then, store.now, take(store.touched, ids))
        return store._replace(
            offset=put(store.offset, ids, offset), touched=put(store.touched, ids, now)
        )

    recall = lambda store, ids: (read(store, ids), jnp.ones_like(ids, bool))
    rows = Lazy._make([False, False, True, True])
    return Memory(init, tick, read, _debiased_mix(p_visit), write, recall, rows)


class Offsets(NamedTuple):
    """The rows of v2's lazy store."""

    offset: Personal
    touched: Clock


def parted(store: PyTree) -> tuple[PyTree, PyTree]:
    """What is common to all tasks, and what has a row for each; `whole` puts it together again.

    The rows are a pair: a memory's numbers, and the counts or clocks that go with them. Not of the
    direct form of v2, which moves all rows at every step.
    """
    if isinstance(store, Lazy):
        nobody = Clock((), ())  # type: ignore[arg-type]
        return store._replace(offset=(), touched=nobody), Offsets(store.offset, store.touched)
    return (), store


def whole(common: PyTree, rows: PyTree) -> PyTree:
    """A store from its two parts; it may hold the rows of some tasks only."""
    if isinstance(common, Lazy):
        return common._replace(offset=rows.offset, touched=rows.touched)
    return rows
