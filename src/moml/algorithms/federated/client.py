"""What a client does in a round: local steps, on all leaves or some, with leaves of its own.

A client update is one pure function, (w, row, samples, steps, hyper) -> `ClientResult`. Whatever
runs clients (vmap, devices, Flower) calls that one function. The model and `extra` leave the
client; the row is what it keeps between rounds, and lies in a store apart.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from moml.algorithms.parts.adapt import Leaves, all_leaves, combine, pick
from moml.algorithms.parts.memory import Ema
from moml.algorithms.parts.personal import Step
from moml.algorithms.parts.task_map import added, mean, mean_from_sum
from moml.types import Hyper, Loss, Meta, Params, Samples, Task


class ClientResult(NamedTuple):
    """What a round leaves at a client: the model it sends, the row it keeps."""

    meta: Meta
    row: PyTree
    loss: Float[Array, ""]
    extra: PyTree = ()  # sent besides the model


Steps = Int[Array, ""] | None  # local steps of a client; None: as many as it has samples for
Update = Callable[..., ClientResult]  # w, row, samples, steps, hyper, and what else was sent
Pull = Callable[[Meta], Meta]  # w_i -> what is added to its gradient


def where(condition: Bool[Array, "*rows"], new: PyTree, old: PyTree) -> PyTree:
    """`new` where the condition holds, else `old`, leaf by leaf, row by row."""

    def leaf(new: Array, old: Array) -> Array:
        rows = jnp.expand_dims(condition, range(condition.ndim, new.ndim))
        return jnp.where(rows, new, old)

    return jax.tree.map(leaf, new, old)


def weighted(x: PyTree, weight: Array) -> PyTree:
    """p_i x_i, leaf by leaf; 0 where there is no weight, also of what is not finite."""
    x = where(weight.astype(bool), x, optax.tree.zeros_like(x))
    return jax.tree.map(lambda x: weight.astype(x.dtype) * x, x)


def weighted_mean(rows: PyTree, weight: Array) -> PyTree:
    """sum_i p_i x_i / sum_i p_i, leaf by leaf; what has no weight may be anything."""
    total = added(jax.vmap(weighted)(rows, weight))
    return mean_from_sum(jnp.maximum(jnp.sum(weight), 1), total)


def repeat(
    step: Callable[[PyTree, PyTree], PyTree], start: PyTree, samples: PyTree, steps: Steps
) -> PyTree:
    """`steps` steps, each with its own samples: where they end, and the mean of their losses.

    Clients side by side go on until the last of them is done.
    """
    if steps is None:
        end, losses = jax.lax.scan(step, start, samples)
        return end, mean(losses)
    length = len(jax.tree.leaves(samples)[0])
    like = jax.eval_shape(step, start, jax.tree.map(lambda x: x[0], samples))[1]

    def one(carry: PyTree) -> PyTree:
        h, at, losses = carry
        own = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, h, keepdims=False), samples)
        at, loss = step(at, own)
        return h + 1, at, jax.lax.dynamic_update_index_in_dim(losses, loss, h, 0)

    begin = jnp.zeros((), steps.dtype), start, jnp.zeros((length, *like.shape), like.dtype)
    h, end, losses = jax.lax.while_loop(lambda carry: carry[0] < steps, one, begin)
    return end, weighted_mean(losses, jnp.arange(length, dtype=h.dtype) < h)


def local_steps(visit: Callable[..., Step], loss: Loss | None = None) -> Update:
    """H times w_i <- w_i - eta Delta_i(w_i), with new samples each time.

    `visit` is a personal step: (w, row, samples, hyper) -> a new row, Delta and the loss. State
    of a `loss`, such as batch statistics, is renewed at every step.
    """

    def update(meta: Meta, row: PyTree, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        def local_step(carry: PyTree, samples: Task) -> tuple[PyTree, Float[Array, ""]]:
            w, row = carry
            step = visit(w, row, samples, hyper)
            new = jax.tree.map(lambda w, d: w - hyper.eta * d, w, step.delta)
            return (renewed(loss, new, w, samples.support), step.u), step.loss

        (meta, row), value = repeat(local_step, (meta, row), task, steps)
        return ClientResult(meta, row, value)

    return update


def descend(
    loss: Loss, w: Params, task: Task, steps: Steps, eta: Array, *,
    pull: Pull | None = None, leaves: Leaves = all_leaves,
) -> tuple[Params, Float[Array, ""]]:  # fmt: skip
    """H times w <- w - eta (grad L_S1(w) + pull(w)) on the chosen leaves; the mean loss before.

    Other leaves are frozen. State of a loss, such as batch statistics, is renewed at every step.

    >>> from moml.types import Batch
    >>> loss = lambda w, x: jnp.mean((w - x) ** 2) / 2
    >>> w, _ = descend(loss, jnp.array(0.0), Task(jnp.ones((2, 3))), None, jnp.array(0.5))
    >>> float(w)
    0.75
    """

    def step(w: Params, samples: Samples) -> tuple[Params, Float[Array, ""]]:
        value, grad = jax.value_and_grad(loss)(w, samples)
        if pull is not None:
            grad = optax.tree.add(grad, pull(w))
        moved = jax.tree.map(lambda w, g: w - eta * g, w, grad)
        return renewed(loss, combine(pick(moved, leaves(w)), w), w, samples), value

    return repeat(step, w, task.support, steps)


def near(w: Params, strength: Array) -> Pull:
    """The pull towards w, the gradient of strength / 2 |p - w|^2."""
    return lambda p: jax.tree.map(lambda p, w: strength * (p - w), p, w)


def renewed(loss: Loss | None, new: Params, old: Params, samples: Samples) -> Params:
    """The new parameters, with the state that the loss at the old ones leaves (`loss.refresh`)."""
    refresh, state = getattr(loss, "refresh", None), getattr(loss, "state", None)
    if refresh is None or state is None:
        return new
    return combine(pick(refresh(old, samples), state(old)), new)


class Private(NamedTuple):
    """What a client with leaves of its own keeps: these, and what its update keeps besides."""

    leaves: Params  # None in place of leaves that are shared
    rest: PyTree


def others(leaves: Leaves) -> Leaves:
    """The leaves that are not chosen."""
    return lambda params: jax.tree.map(lambda chosen: not chosen, leaves(params))


def with_private(update: Update, leaves: Leaves) -> Update:
    """The same update at a client that keeps the chosen leaves and sends the others."""

    def own(
        meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper, *extra: PyTree
    ) -> ClientResult:
        w, rest = combine(row.u.leaves, meta), row.u.rest
        rest = row._replace(u=rest) if jax.tree.leaves(rest) else ()
        done = update(w, rest, task, steps, hyper, *extra)
        kept = Private(pick(done.meta, leaves(w)), done.row)
        return done._replace(meta=pick(done.meta, others(leaves)(w)), row=kept)

    return own


def sending(update: Update, leaves: Leaves) -> Update:
    """The same update at a client that sends the chosen leaves alone."""

    def some(
        meta: Meta, row: PyTree, task: Task, steps: Steps, hyper: Hyper, *extra: PyTree
    ) -> ClientResult:
        done = update(meta, row, task, steps, hyper, *extra)
        return done._replace(meta=pick(done.meta, leaves(meta)))

    return some
