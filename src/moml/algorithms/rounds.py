"""Rounds: sampled clients each do an update of their own, the server takes the mean.

A client update is one pure function, (w, row, samples, steps, hyper) -> `ClientResult`. Whatever
runs clients (vmap here, devices, Flower) calls that one function. Only the model ever leaves it;
the row is all that a client keeps between rounds, and lies in a store apart.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from moml.algorithms.memory import put, take
from moml.algorithms.moml import mean, norm
from moml.types import (
    Algorithm,
    Hyper,
    Info,
    Meta,
    Need,
    Params,
    Rounds,
    Scalar,
    Task,
    Turnout,
    Visit,
)


class RoundState(NamedTuple):
    """The server's model, and the store: a row of every client, or () where none is kept."""

    meta: Meta
    memory: Any


class ClientResult(NamedTuple):
    """What a round leaves at a client: the model it sends, the row it keeps."""

    meta: Meta
    row: Any
    loss: Float[Array, ""]


Steps = Int[Array, ""] | None  # local steps of a client; None: as many as it has samples for
Update = Callable[[Meta, Any, Task, Steps, Hyper], ClientResult]


def repeat(step: Callable[[Any, Any], Any], start: Any, samples: Any, steps: Steps) -> Any:
    """A scan that stands still after `steps` steps: where it ends, and the mean of its losses."""
    if steps is None:
        end, losses = jax.lax.scan(step, start, samples)
        return end, mean(losses)
    h = jnp.arange(jax.tree.leaves(samples)[0].shape[0], dtype=jnp.int32)

    def one(carry: Any, at: Any) -> tuple[Any, Any]:
        new, loss = step(carry, at[1])
        return where(at[0] < steps, new, carry), loss

    end, losses = jax.lax.scan(one, start, (h, samples))
    return end, weighted_mean(losses, h < steps)


def local_steps(visit: Callable[..., Any]) -> Update:
    """H times w_i <- w_i - eta Delta_i(w_i), with new samples each time.

    `visit` is a personal step: (w, row, samples, hyper) -> a new row, Delta and the loss.
    """

    def update(meta: Meta, row: Any, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        def local_step(carry: Any, samples: Task) -> tuple[Any, Float[Array, ""]]:
            w, row = carry
            step = visit(w, row, samples, hyper)
            w = jax.tree.map(lambda w, d: w - hyper.eta * d, w, step.delta)
            return (w, step.u), step.loss

        (meta, row), loss = repeat(local_step, (meta, row), task, steps)
        return ClientResult(meta, row, loss)

    return update


def where(condition: Bool[Array, "*rows"], new: Any, old: Any) -> Any:
    """`new` where the condition holds, else `old`, leaf by leaf, row by row."""

    def leaf(new: Array, old: Array) -> Array:
        rows = condition.reshape(condition.shape + (1,) * (new.ndim - condition.ndim))
        return jnp.where(rows, new, old)

    return jax.tree.map(leaf, new, old)


def weighted_sum(rows: Any, weight: Array) -> Any:
    """sum_i p_i x_i, leaf by leaf; what has no weight may be anything."""

    def leaf(x: Array) -> Array:
        p = weight.astype(x.dtype)
        x = where(p > 0, x, jnp.zeros_like(x))  # 0 times what is not finite is not 0
        return jnp.sum(jax.vmap(jnp.multiply)(p, x), axis=0)

    return jax.tree.map(leaf, rows)


def weighted_mean(rows: Any, weight: Array) -> Any:
    """sum_i p_i x_i / sum_i p_i, leaf by leaf."""
    return _over(jnp.maximum(jnp.sum(weight), 1), weighted_sum(rows, weight))


def added(rows: Any, turnout: Turnout | None) -> Any:
    """sum p_i x_i over the clients that answered."""
    if turnout is None:
        return jax.tree.map(lambda x: jnp.sum(x, axis=0), rows)
    return weighted_sum(rows, _weight(turnout))


def heard(total: Any, visit: Visit) -> Any:
    """The server's mean, of what it added up: 1/B sum w_i, or sum p_i w_i / sum p_i."""
    if visit.turnout is None:
        return _over(len(visit.ids), total)
    return _over(jnp.maximum(jnp.sum(_weight(visit.turnout)), 1), total)


def _weight(turnout: Turnout) -> Int[Array, " tasks"]:
    return jnp.where(turnout.present, turnout.weight, 0)


def _over(count: Any, total: Any) -> Any:
    return jax.tree.map(lambda x: x / jnp.asarray(count, x.dtype), total)


def towards_mean(rate: Scalar) -> Callable[[Meta, Meta], Meta]:
    """A server's rule: w <- (1 - rate) w + rate mean(w_i)."""
    return lambda meta, mean: optax.incremental_update(mean, meta, rate)


def in_slices(step: Callable[[Any, Any], Any], start: Any, xs: Any, size: int) -> Any:
    """A scan over `size` rows of xs at a time, in the last step over those that are left."""
    count = len(jax.tree.leaves(xs)[0])
    if size >= count:
        return step(start, xs)
    whole = count - count % size
    cut = lambda x: x[:whole].reshape(-1, size, *x.shape[1:])
    start, ys = jax.lax.scan(step, start, jax.tree.map(cut, xs))
    ys = jax.tree.map(lambda y: y.reshape(whole, *y.shape[2:]), ys)
    if whole == count:
        return start, ys
    start, last = step(start, jax.tree.map(lambda x: x[whole:], xs))
    return start, jax.tree.map(lambda *y: jnp.concatenate(y), ys, last)


CACHE = 2 << 20  # bytes of models that a processor works on without waiting for its memory


def that_fit(meta: Meta, count: int) -> int:
    """How many of `count` clients' models a processor's cache holds, in slices of like size.

    >>> that_fit(jnp.zeros(1 << 17, jnp.float32), 10)  # 4 would fit; 3 slices of 4, 4 and 2
    4
    """
    most = max(1, CACHE // sum(leaf.nbytes for leaf in jax.tree.leaves(meta)))
    return -(-count // -(-count // most))


def rounds(
    init: Callable[[Params, Hyper], Meta],
    update: Update,
    need: Need,
    *,
    store: Callable[[Meta], Any] = lambda meta: (),
    server: Callable[[Meta, Meta], Meta] = lambda meta, mean: mean,
    at_once: int | None = None,
) -> Algorithm:
    """Rounds of a client update; `server` makes the new model of the old one and the mean.

    `store` makes the rows of all clients at the start. `at_once` clients run side by side, the
    others after them; None: on a processor as many as fit into its cache, on other devices all.
    """

    def first(params: Params, hyper: Hyper) -> RoundState:
        meta = init(params, hyper)
        return RoundState(meta, store(meta))

    def step(state: RoundState, visit: Visit, hyper: Hyper) -> tuple[RoundState, Info]:
        def some(carry: Any, visit: Visit) -> tuple[Any, Any]:
            (total, memory), turnout = carry, visit.turnout
            rows = take(memory, visit.ids)
            steps = None if turnout is None else turnout.steps
            client = lambda row, task, steps: update(state.meta, row, task, steps, hyper)
            done = jax.vmap(client)(rows, visit.task, steps)
            kept = done.row if turnout is None else where(turnout.present, done.row, rows)
            total = optax.tree.add(total, added(done.meta, turnout))
            return (total, put(memory, visit.ids, kept)), done.loss

        def by(size: int) -> Callable[..., Any]:
            return lambda carry, visit: in_slices(some, carry, visit, size)

        count, given = len(visit.ids), ((optax.tree.zeros_like(state.meta), state.memory), visit)
        few = that_fit(state.meta, count) if at_once is None else at_once
        if at_once is None and few < count:
            outcome = jax.lax.platform_dependent(*given, cpu=by(few), default=by(count))
        else:
            outcome = by(few)(*given)
        (total, memory), losses = outcome
        meta = server(state.meta, heard(total, visit))
        loss = heard(added(losses, visit.turnout), visit)
        if visit.turnout is not None:
            silence = (state.meta, jnp.mean(losses))  # where nobody answers the model stays
            meta, loss = where(jnp.any(visit.turnout.present), (meta, loss), silence)
        moved = norm(optax.tree.sub(state.meta, meta))
        return RoundState(meta, memory), Info(loss, moved)

    row = lambda meta: jax.tree.map(lambda rows: rows[0], store(meta))  # all begin alike
    return Algorithm(first, step, need, need.visits or 1, rounds=Rounds(update, row, server))
