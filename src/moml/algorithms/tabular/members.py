"""The table recipe: kinds of members, each a composition of a net, a summary and an adaptation."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from moml.algorithms.parts.adapt import all_leaves, named, nothing_adapts, shrinking_steps
from moml.algorithms.parts.heads import closed_form
from moml.algorithms.tabular.summary import Summed, beside, given_summary, summary_of, with_summary
from moml.models.losses import masked_mean
from moml.models.networks import Model
from moml.models.table import Knots, squash, table_net
from moml.models.user import Build, as_model, bounded
from moml.types import Adapt, Batch, Key, Loss, Params

BOUND = 10.0  # standard deviations of the target, further ones count as so many
STEPS = 3  # of members that adapt by gradient steps


class Shape(NamedTuple):
    """What a table's members look like."""

    features: int
    classes: int | None = None  # None: the target is a number
    ordered: bool = False
    hidden: tuple[int, ...] = (32,)
    build: Build | None = None  # a user's own network instead


class PersonalParams(NamedTuple):
    """What is kept of tasks, without any of their rows: every leaf has a row for each task."""

    summary: Any  # [tasks, summary]
    heads: dict[str, Any]  # kind -> leaves [tasks, members, ...]


class Parts(NamedTuple):
    """A kind of member."""

    init: Callable[[Key], Summed]
    loss: Loss  # the mean over the places of a batch, empty ones counted: every row weighs the same
    adapt: Adapt
    answer: Callable[[Summed, Any], Any]  # of rows: targets [rows], or probabilities of classes
    inner: Adapt  # that adaptation of rows beside their summary
    net: Model


def targets(shape: Shape, y: Any) -> Float[Array, "rows out"]:
    """Targets as columns: one number, or one for each class."""
    if shape.classes is None:
        return BOUND * jnp.tanh(y / BOUND)[:, None]
    return jax.nn.one_hot(y, shape.classes, dtype=jnp.result_type(float))


def _each(shape: Shape, net: Model) -> Callable[[Params, Batch], Any]:
    """Every row's loss: squared error, or cross-entropy."""

    def loss(params: Params, batch: Batch) -> Float[Array, " rows"]:
        given = net.predict(params, batch.x)
        if shape.classes is None:
            return (given[:, 0] - batch.y) ** 2
        return optax.losses.softmax_cross_entropy_with_integer_labels(given, batch.y)

    return loss


def _head(params: Any) -> Any:
    return params.head


def _alone(shape: Shape, net: Model) -> Adapt:
    return nothing_adapts()


def _closed(shape: Shape, net: Model) -> Adapt:
    return closed_form(net.features, _head, predict=net.predict, by_feature=True, log_prior=-2.0)


def _by_steps(shape: Shape, net: Model) -> Adapt:
    each = _each(shape, net)
    mean = lambda params, batch: masked_mean(each(params, batch), batch.mask > 0)
    return shrinking_steps(mean, STEPS, leaves=_head_or_all)


def _head_or_all(params: Params) -> Any:
    """A network's head adapts, or all of it where no leaf is of that name."""
    head = named("head")(params)
    return head if any(jax.tree.leaves(head)) else all_leaves(params)


# kind -> its adaptation; all but the last two see the summary of what is known of the task
KINDS: dict[str, Callable[[Shape, Model], Adapt]] = {
    "summary": _alone,  # nothing adapts beside the summary
    "head": _closed,  # and a linear head in closed form
    "steps": _by_steps,  # and that head by gradient steps
    "pooled": _alone,  # the same for everybody
    "own": _by_steps,  # a user's network
}


def candidates(shape: Shape) -> tuple[str, ...]:
    """The kinds that a table is tried with."""
    if shape.build is not None:
        return ("own",)
    return ("summary", "head") if shape.classes is None else ("summary", "steps")


def parts(kind: str, shape: Shape, at: Knots) -> Parts:
    """A kind of member for tables of this shape."""
    summarise, leave_out = summary_of(squash, lambda y: targets(shape, y), shape.ordered)
    if kind in ("pooled", "own"):
        summarise = lambda batch: jnp.zeros(0, batch.x.dtype)
        leave_out = lambda batch: jnp.zeros((len(batch.x), 0), batch.x.dtype)
    dtype = jnp.result_type(float)
    y = jnp.zeros(1, dtype if shape.classes is None else jnp.int32)
    nothing = summarise(Batch(jnp.zeros((1, shape.features), dtype), y, jnp.zeros(1, dtype)))
    out = shape.classes or 1
    if kind == "own" and shape.build is not None:
        net = bounded(as_model(shape.build, shape.features, out))
    else:
        net = table_net(shape.features, len(nothing), out, at, shape.hidden)
    each = _each(shape, net)
    loss = given_summary(lambda params, batch: jnp.mean(batch.mask * each(params, batch)))

    def answer(params: Summed, x: Any) -> Any:
        given = net.predict(params.own, beside(x, params.summary))
        return given[:, 0] if shape.classes is None else jax.nn.softmax(given)

    inner = KINDS[kind](shape, net)
    adapt = with_summary(inner, summarise, leave_out, nothing)
    return Parts(lambda key: Summed(net.init(key), nothing), loss, adapt, answer, inner, net)
