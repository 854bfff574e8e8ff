"""Kinds of members of a table model, each composed of a network, a summary and an adaptation."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from moml.algorithms.parts.adapt import all_leaves, named, nothing_adapts, shrinking_steps
from moml.algorithms.parts.heads import closed_form
from moml.algorithms.tabular.summary import (
    WithSummary,
    beside,
    given_summary,
    no_rows,
    summary_of,
    with_summary,
)
from moml.models.losses import masked_mean
from moml.models.networks import Layer, Model
from moml.models.table import Knots, TableParams, squash, table_net
from moml.models.user import Build, as_model, bounded
from moml.types import Adapt, Batch, Hyper, Key, Loss, Meta, Params

BOUND = 10.0  # targets are bounded to this many standard deviations
STEPS = 3  # gradient steps of members that adapt by steps


class Shape(NamedTuple):
    """What determines the programs of a table model."""

    features: int
    classes: int | None = None  # None: the target is a number
    ordered: bool = False
    hidden: tuple[int, ...] = (32,)
    build: Build | None = None  # a user's network instead of ours


class PersonalParams(NamedTuple):
    """What is kept of tasks, without their rows: every leaf has one row per task."""

    summary: PyTree  # [tasks, summary]
    heads: dict[str, PyTree]  # kind -> leaves [tasks, members, ...]


class Parts(NamedTuple):
    """The functions of one kind of member."""

    init: Callable[[Key], WithSummary]
    loss: Loss  # mean over all places of a batch, empty ones included, so that rows weigh equally
    adapt: Adapt
    answer: Callable[[WithSummary, jax.Array], jax.Array]  # targets [rows], or probabilities
    inner: Adapt  # the same adaptation, of rows beside their summary
    net: Model
    classes: int | None


def targets(shape: Shape, y: jax.Array) -> Float[Array, "rows out"]:
    """Targets as columns: one number, or one for each class."""
    if shape.classes is None:
        return BOUND * jnp.tanh(y / BOUND)[:, None]
    return jax.nn.one_hot(y, shape.classes, dtype=jnp.result_type(float))


def _row_loss(shape: Shape, net: Model) -> Callable[[Params, Batch], Float[Array, " rows"]]:
    """Squared error or cross-entropy of every row."""

    def loss(params: Params, batch: Batch) -> Float[Array, " rows"]:
        given = net.predict(params, batch.x)
        if shape.classes is None:
            return (given[:, 0] - batch.y) ** 2
        return optax.losses.softmax_cross_entropy_with_integer_labels(given, batch.y)

    return loss


def _none(shape: Shape, net: Model) -> Adapt:
    return nothing_adapts()


def _closed_form(shape: Shape, net: Model) -> Adapt:
    head = lambda params: params.head
    beside = lambda params, rows: rows[:, shape.features :] @ params.beside.T
    merge = lambda meta, p: meta.params._replace(head=Layer(*p))
    adapt = closed_form(net.features, head, beside=beside, by_feature=True, log_prior=-2.0)
    return adapt._replace(merge=merge)


def _steps(shape: Shape, net: Model) -> Adapt:
    row_loss = _row_loss(shape, net)
    loss = lambda params, batch: masked_mean(row_loss(params, batch), batch.mask > 0)
    return shrinking_steps(loss, STEPS, leaves=_head_or_all)


def _head_or_all(params: Params) -> PyTree[bool]:
    """The leaves named head, or all where there are none."""
    head = named("head")(params)
    return head if any(jax.tree.leaves(head)) else all_leaves(params)


# kind -> its adaptation; all but the last two receive the summary of the task's known rows
KINDS: dict[str, Callable[[Shape, Model], Adapt]] = {
    "summary": _none,
    "head": _closed_form,
    "steps": _steps,
    "pooled": _none,  # the same for all tasks
    "custom": _steps,  # a user's network
}


def candidates(shape: Shape) -> tuple[str, ...]:
    """The kinds to try on a table."""
    if shape.build is not None:
        return ("custom",)
    return ("summary", "head") if shape.classes is None else ("summary", "steps")


def answers_of(
    made: Parts,
    meta: Meta,
    heads: PyTree,
    summary: Float[np.ndarray, "rows summary"],
    x: Float[np.ndarray, "rows features"],
) -> Float[np.ndarray, "members rows *classes"]:
    """Predictions of our own networks for rows of any tasks, in numpy: nothing is compiled.

    `meta` has leaves [members, ...], `heads` leaves [rows, members, ...], each row's own head.
    """
    if made.net.features is None:
        raise TypeError("members without features answer by `Parts.answer`")
    params: TableParams = made.inner.merge(meta, heads)
    c = summary[:, : params.beside.shape[-1]]
    rows: PyTree = np.concatenate([x, c], axis=1)
    f, weight, bias = made.net.features(params, rows), *params.head
    if jax.tree.leaves(heads):
        linear = np.einsum("mrf,rmof->mro", f, weight) + np.swapaxes(bias, 0, 1)
    else:
        linear = f @ weight.mT + bias[:, None]
    given = linear + c @ params.beside.mT
    return given[..., 0] if made.classes is None else softmax(given)


def softmax(z: Float[np.ndarray, "*rows classes"]) -> Float[np.ndarray, "*rows classes"]:
    """exp(z) as shares of their sum.

    >>> softmax(np.zeros(2)).tolist()
    [0.5, 0.5]
    """
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def parts(kind: str, shape: Shape, at: Knots) -> Parts:
    """A kind of member for tables of this shape."""
    summarise, leave_out = summary_of(squash, lambda y: targets(shape, y), shape.ordered)
    out, dtype = shape.classes or 1, jnp.result_type(float)
    empty = no_rows(out, shape.features, shape.ordered, dtype)
    if kind in ("pooled", "custom"):
        summarise = lambda batch: jnp.zeros(0, batch.x.dtype)
        leave_out = lambda batch: jnp.zeros((len(batch.x), 0), batch.x.dtype)
        empty = empty[:0]
    if kind == "custom" and shape.build is not None:
        net = bounded(as_model(shape.build, shape.features, out))
    else:
        net = table_net(shape.features, len(empty), out, at, shape.hidden)
    row_loss = _row_loss(shape, net)
    loss = given_summary(lambda params, batch: jnp.mean(batch.mask * row_loss(params, batch)))

    def answer(p: WithSummary, x: jax.Array) -> jax.Array:
        given = net.predict(p.params, beside(x, p.summary))
        return given[:, 0] if shape.classes is None else jax.nn.softmax(given)

    inner = KINDS[kind](shape, net)
    adapt = with_summary(inner, summarise, leave_out, empty)
    init = lambda key: WithSummary(net.init(key), empty)
    return Parts(init, loss, adapt, answer, inner, net, shape.classes)


def meta_like(kind: str, shape: Shape, at: Knots) -> Meta:
    """Shapes and types of one member's meta-parameters; nothing is computed."""
    made = parts(kind, shape, at)

    def init(seed: jax.Array) -> Meta:
        return made.adapt.init(made.init(jax.random.key(seed)), Hyper(eta=0.0, alpha=0.1))

    return jax.eval_shape(init, jax.ShapeDtypeStruct((), jnp.uint32))
