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


def weighted_mean(rows: Any, weight: Array) -> Any:
    """sum_i p_i x_i / sum_i p_i, leaf by leaf; what has no weight may be anything."""

    def leaf(x: Array) -> Array:
        p = weight.astype(x.dtype)
        x = where(p > 0, x, jnp.zeros_like(x))  # 0 times what is not finite is not 0
        return jnp.sum(jax.vmap(jnp.multiply)(p, x), axis=0) / jnp.maximum(jnp.sum(p), 1)

    return jax.tree.map(leaf, rows)


def heard(rows: Any, turnout: Turnout | None) -> Any:
    """The server's mean, over the clients that answered."""
    if turnout is None:
        return mean(rows)  # w_{r+1} = 1/B sum w_i
    return weighted_mean(rows, jnp.where(turnout.present, turnout.weight, 0))


def towards_mean(rate: Scalar) -> Callable[[Meta, Meta], Meta]:
    """A server's rule: w <- (1 - rate) w + rate mean(w_i)."""
    return lambda meta, mean: optax.incremental_update(mean, meta, rate)


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

    `store` makes the rows of all clients at the start; `at_once` runs the clients in slices.
    """

    def first(params: Params, hyper: Hyper) -> RoundState:
        meta = init(params, hyper)
        return RoundState(meta, store(meta))

    def step(state: RoundState, visit: Visit, hyper: Hyper) -> tuple[RoundState, Info]:
        turnout = visit.turnout

        def client(one: Any) -> ClientResult:
            row, task, steps = one
            return update(state.meta, row, task, steps, hyper)

        rows = take(state.memory, visit.ids)
        given = (rows, visit.task, None if turnout is None else turnout.steps)
        if at_once is None:
            clients = jax.vmap(client)(given)
        else:
            clients = jax.lax.map(client, given, batch_size=min(at_once, need.tasks))
        kept, meta = clients.row, server(state.meta, heard(clients.meta, turnout))
        loss = heard(clients.loss, turnout)
        if turnout is not None:
            kept = where(turnout.present, kept, rows)
            silence = (state.meta, jnp.mean(clients.loss))  # where nobody answers the model stays
            meta, loss = where(jnp.any(turnout.present), (meta, loss), silence)
        moved = norm(optax.tree.sub(state.meta, meta))
        return RoundState(meta, put(state.memory, visit.ids, kept)), Info(loss, moved)

    return Algorithm(first, step, need, iterations=need.visits or 1)
