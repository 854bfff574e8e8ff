"""What a client's model scores: before fine-tuning on a few images, and after each step of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from moml.models import accuracy, masked_mean
from moml.models.networks import Model
from moml.paper.federated.data import Drawn, Pool
from moml.paper.federated.protocols import Protocol
from moml.paper.federated.released import flat, picked, span_logits
from moml.tasks.clients import unit
from moml.types import Batch, Loss, Meta, Params

AT_ONCE = 8  # members scored side by side
Curves = Float[np.ndarray, "members clients steps"]  # accuracy before, and after each step


class Clients(NamedTuple):
    """What every member's clients score, in percent."""

    before: Float[np.ndarray, "members clients"]
    after: Float[np.ndarray, "members clients"]


def tuning(
    grad: Callable[[Params], Params],
    right: Callable[[Params], Any],
    start: Params,
    *,
    steps: int,
    rate: Any,
) -> Float[Array, " points"]:
    """The accuracy before, and after each of `steps` steps p <- p - rate grad(p)."""

    def step(p: Params, _: None) -> tuple[Params, Any]:
        p = jax.tree.map(lambda p, g: p - rate * g, p, grad(p))
        return p, right(p)

    after = jax.lax.scan(step, start, length=steps)[1]
    return jnp.concatenate([right(start)[None], after])


def scorer(
    net: Model, loss: Loss, pool: Pool, rows: Drawn, p: Protocol, *, steps: int, own: bool = False
) -> Callable[[Meta, Any], Curves]:
    """Models and rates of all members -> what each of their clients scores, step by step.

    Members are settings x seeds, the seeds running faster; with `own`, a model of each client.
    """
    right = accuracy(net.predict)

    def plain(meta: Meta, support: Batch, query: Batch, rate: Any) -> Float[Array, " points"]:
        grad = lambda p: jax.grad(loss)(p, support)
        return tuning(grad, lambda p: right(p, query), meta, steps=steps, rate=rate)

    def on_span(meta: Meta, support: Batch, query: Batch, rate: Any) -> Float[Array, " points"]:
        x = jnp.concatenate([flat(support.x), flat(query.x)])
        shots = len(support.y)
        mark = (jnp.arange(len(x)) < shots).astype(x.dtype)
        start, logits = span_logits(meta, x)
        few = picked(logits, jnp.concatenate([support.y, query.y]))

        def hits(params: Params) -> Any:
            best = jnp.argmax(logits(params)[shots:], axis=-1).astype(query.y.dtype)
            return 100 * masked_mean((best == query.y).astype(x.dtype), query.mask)

        return tuning(lambda q: jax.grad(few)(q, mark), hits, start, steps=steps, rate=rate)

    one = on_span if p.bare_elu else plain

    def client(meta: Meta, at: Any, rate: Any) -> Float[Array, " points"]:
        fetch = lambda rows: unit(pool.x[rows])
        query = Batch(fetch(at.query), pool.y[at.query], at.mask)
        return one(meta, Batch(fetch(at.support), pool.y[at.support]), query, rate)

    fixed = jax.tree.map(jnp.asarray, rows)

    def member(given: tuple[Meta, Any, Any]) -> Float[Array, "clients points"]:
        meta, seed, rate = given
        at = jax.tree.map(lambda x: x[seed], fixed)
        return jax.vmap(client, (0 if own else None, 0, None))(meta, at, rate)

    @jax.jit
    def program(meta: Meta, rates: Any) -> Any:
        seeds = jnp.arange(len(rates), dtype=jnp.int32) % len(fixed.support)
        return jax.lax.map(member, (meta, seeds, rates), batch_size=AT_ONCE)

    return lambda meta, rates: np.asarray(program(meta, rates))


def reading(curves: Curves, steps: int | None) -> Clients:
    """Before, and after so many steps of fine-tuning; None: the mean over all steps."""
    after = curves[..., 1:].mean(axis=-1) if steps is None else curves[..., steps]
    return Clients(curves[..., 0], after)
