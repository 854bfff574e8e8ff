"""A summary of a task's known rows, as part of what is personal to it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.types import Adapt, Batch, Hyper, Loss, Meta


class Summed(NamedTuple):
    """What adapts, and the summary that goes in beside every row of the task."""

    own: Any
    summary: Float[Array, " summary"]


def beside(x: Float[Array, "rows features"], summary: Float[Array, "*rows summary"]) -> Any:
    """Rows [x, summary]: one summary for all of them, or one each."""
    each = summary if summary.ndim == 2 else jnp.tile(summary[None], (len(x), 1))
    return jnp.concatenate([x, each], axis=1)


def given_summary(loss: Loss) -> Loss:
    """A loss of rows beside their task's summary."""

    def summed(p: Any, batch: Batch) -> Float[Array, ""]:
        return loss(p.own, batch._replace(x=beside(batch.x, p.summary)))

    return summed


def with_summary(
    adapt: Adapt,
    summarise: Callable[[Batch], Any],
    leave_out: Callable[[Batch], Any],
    nothing: Float[Array, " summary"],
) -> Adapt:
    """The same adaptation, of a network that is given a summary of the support beside each row.

    A row of the support sees the summary of the others, `leave_out(support)`: it has an error then
    as a query has, and not the smaller one of a row that is in the summary itself. `nothing` is
    the summary of no rows.
    """

    def init(params: Summed, hyper: Hyper) -> Meta:
        return adapt.init(params.own, hyper)

    def start(meta: Meta) -> Summed:
        return Summed(adapt.start(meta), nothing)

    def apply(meta: Meta, samples: Batch, hyper: Hyper) -> Summed:
        rows = samples._replace(x=beside(samples.x, leave_out(samples)))
        return Summed(adapt.apply(meta, rows, hyper), summarise(samples))

    def merge(meta: Meta, p: Summed) -> Summed:
        return Summed(adapt.merge(meta, p.own), p.summary)

    return Adapt(init, start, apply, merge)


def summary_of(
    inputs: Callable[[Any], Any], targets: Callable[[Any], Any], ordered: bool
) -> tuple[Callable[[Batch], Any], Callable[[Batch], Any]]:
    """`summarise(batch)`, of all real rows, and `leave_out(batch)`, of all but each of them.

    Mean and spread of the targets, the number of rows, the mean of the inputs, and of `ordered`
    rows the newest target and inputs.
    """

    def known(batch: Batch) -> tuple[Any, Any, Any]:
        return inputs(batch.x), targets(batch.y), (batch.mask > 0).astype(batch.x.dtype)

    def summarise(batch: Batch) -> Any:
        return _moments(*known(batch), ordered)

    def leave_out(batch: Batch) -> Any:
        x, y, mask = known(batch)
        others = mask[None] * (1 - jnp.eye(len(mask), dtype=mask.dtype))
        return jax.vmap(lambda mask: _moments(x, y, mask, ordered))(others)

    return summarise, leave_out


def _moments(
    x: Float[Array, "K features"], y: Float[Array, "K out"], mask: Float[Array, " K"], ordered: bool
) -> Float[Array, " summary"]:
    """Sums are divided by k + 1: few rows say little, and none say nothing."""
    k = jnp.sum(mask)
    mean = lambda values: (mask @ values) / (k + 1)
    centre = (mask @ y) / jnp.maximum(k, 1)
    spread = jnp.sqrt((mask @ (y - centre[None]) ** 2 + 1e-6) / (k + 1))
    parts = [mean(y), spread, (k / (k + 3))[None], mean(x)]
    if ordered:
        place = jnp.arange(1, len(mask) + 1, dtype=mask.dtype)
        newest = mask * (place * mask == jnp.max(place * mask)).astype(mask.dtype)
        parts += [newest @ y, newest @ x]
    return jnp.concatenate(parts)
