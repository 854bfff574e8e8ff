"""A summary of a task's known rows as part of what is personal to it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.types import Adapt, Batch, Hyper, Loss, Meta, Personal


class Summed(NamedTuple):
    """What adapts, and what is known of the task: its summary goes in beside every row."""

    own: Any
    summary: Float[Array, " summary"]


def beside(x: Float[Array, "rows features"], summary: Float[Array, "*rows summary"]) -> Any:
    """Rows [x, summary]: one summary for all of them, or one each."""
    each = jnp.broadcast_to(summary, (len(x), summary.shape[-1]))
    return jnp.concatenate([x, each], axis=1)


def given_summary(loss: Loss) -> Loss:
    """A loss of rows beside their task's summary."""
    return lambda p, batch: loss(p.own, batch._replace(x=beside(batch.x, p.summary)))


def with_summary(adapt: Adapt, summarise: Any, leave_out: Any, nothing: Any) -> Adapt:
    """The same adaptation, for a network that is given a summary of the support beside each row.

    A row of the support sees the summary of the others: `leave_out(support)` has one a row.
    """

    def start(meta: Meta) -> Summed:
        return Summed(adapt.start(meta), nothing)

    def apply(meta: Meta, samples: Batch, hyper: Hyper) -> Summed:
        rows = samples._replace(x=beside(samples.x, leave_out(samples)))
        return Summed(adapt.apply(meta, rows, hyper), summarise(samples))

    def merge(meta: Meta, p: Summed) -> Summed:
        return Summed(adapt.merge(meta, p.own), p.summary)

    init = lambda params, hyper: adapt.init(params.own, hyper)
    return Adapt(init, start, apply, merge)


TARGET_BOUND = 10.0


def _moments(x: Any, y: Any, mask: Any, ordered: bool) -> Any:
    """Mean, spread and last of the targets, their number, mean and last of the inputs.

    Sums are divided by k + 1, so that few rows say little and none say nothing.
    """
    k = jnp.sum(mask)
    mean = lambda v: (mask @ v) / (k + 1)
    centre = (mask @ y) / jnp.maximum(k, 1)
    spread = jnp.sqrt((mask @ (y - centre) ** 2 + 1e-6) / (k + 1))
    place = jnp.arange(len(mask), dtype=mask.dtype)
    newest = jax.nn.one_hot(jnp.argmax(mask * (place + 1)), len(mask), dtype=mask.dtype)
    newest = newest * mask
    number = (k / (k + 3))[None]
    parts = [mean(y), spread, number, mean(x)]
    return jnp.concatenate(parts + ([newest @ y, newest @ x] if ordered else []))


def summary_of(inputs: Any, targets: Any, ordered: bool) -> tuple[Any, Any]:
    """`summarise(batch)` and `leave_out(batch)`: a summary of all rows, and one without each."""

    def summarise(batch: Batch) -> Any:
        return _moments(
            inputs(batch.x), targets(batch.y), (batch.mask > 0).astype(batch.x.dtype), ordered
        )

    def leave_out(batch: Batch) -> Any:
        x, y, mask = inputs(batch.x), targets(batch.y), (batch.mask > 0).astype(batch.x.dtype)
        others = mask[None, :] * (1 - jnp.eye(len(mask), dtype=mask.dtype))
        return jax.vmap(lambda m: _moments(x, y, m, ordered))(others)

    return summarise, leave_out
