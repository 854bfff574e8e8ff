"""Summaries of a task's rows: computed, merged with those of later rows, given to a network.

The fields of a summary of k rows, in order: mean and spread of the targets, k / (k + 3), mean of
the inputs and, for ordered rows, the newest target and inputs. Sums are divided by k + 1, so a
summary of few rows is close to zero.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import DTypeLike

from moml.types import Adapt, Batch, Hyper, Loss, Meta

Summarise = Callable[[Batch], Float[Array, "*rows summary"]]
Transform = Callable[[jax.Array], jax.Array]


class WithSummary(NamedTuple):
    """Parameters of a network, and the summary it receives beside every row of the task."""

    params: PyTree
    summary: Float[Array | np.ndarray, " summary"]


def beside(
    x: Float[Array, "rows features"], summary: Float[Array | np.ndarray, "*rows summary"]
) -> Float[Array, "rows inputs"]:
    """Rows [x, summary]: one summary for all of them, or one each."""
    each = summary if summary.ndim == 2 else jnp.tile(summary[None], (len(x), 1))
    return jnp.concatenate([x, jnp.asarray(each)], axis=1)


def given_summary(loss: Loss) -> Loss:
    """A loss of rows beside their task's summary."""

    def summed(p: WithSummary, batch: Batch) -> Float[Array, ""]:
        return loss(p.params, batch._replace(x=beside(batch.x, p.summary)))

    return summed


def with_summary(
    adapt: Adapt, summarise: Summarise, leave_out: Summarise, empty: np.ndarray
) -> Adapt:
    """The same adaptation, of a network that receives a summary of the support beside each row.

    A support row sees the summary of the *other* support rows, `leave_out(support)`, so its error
    is like that of a query row. `empty` is the summary of no rows.
    """

    def init(p: WithSummary, hyper: Hyper) -> Meta:
        return adapt.init(p.params, hyper)

    def start(meta: Meta) -> WithSummary:
        return WithSummary(adapt.start(meta), empty)

    def apply(meta: Meta, samples: Batch, hyper: Hyper) -> WithSummary:
        rows = samples._replace(x=beside(samples.x, leave_out(samples)))
        return WithSummary(adapt.apply(meta, rows, hyper), summarise(samples))

    def merge(meta: Meta, p: WithSummary) -> WithSummary:
        return WithSummary(adapt.merge(meta, p.params), p.summary)

    return Adapt(init, start, apply, merge)


def summary_of(inputs: Transform, targets: Transform, ordered: bool) -> tuple[Summarise, Summarise]:
    """`summarise(batch)` of all real rows, and `leave_out(batch)` of all but each of them."""

    def of(batch: Batch, without: bool) -> Float[Array, "lines summary"]:
        real = (batch.mask > 0).astype(batch.x.dtype)
        return _moments(inputs(batch.x), targets(batch.y), real, without, ordered)

    return lambda batch: of(batch, False)[0], lambda batch: of(batch, True)


def _moments(
    x: Float[Array, "K features"],
    y: Float[Array, "K out"],
    real: Float[Array, " K"],
    without: bool,
    ordered: bool,
) -> Float[Array, "lines summary"]:
    """The summary of the real rows, one line; or `without` each row in turn, K lines.

    Squares are taken about the mean of all real rows, so that little is lost in their difference.
    A row is left out of the sums, so that the cost is that of K rows and not of K x K.
    """
    mask, out = real[:, None], y.shape[1]
    off = y - jnp.sum(mask * y, axis=0, keepdims=True) / jnp.maximum(jnp.sum(real), 1)
    rows = mask * jnp.concatenate([off, off**2, y, x, jnp.ones_like(mask)], axis=1)
    sums = jnp.sum(rows, axis=0, keepdims=True) - (rows if without else 0)
    first, second, rest, k = jnp.split(sums, [out, 2 * out, sums.shape[1] - 1], axis=1)
    squares = jnp.maximum(second - first**2 / jnp.maximum(k, 1), 0)
    spread = jnp.sqrt((squares + 1e-6) / (k + 1))
    rest = rest / (k + 1)
    parts = [rest[:, :out], spread, k / (k + 3), rest[:, out:]]
    if ordered:
        both = mask * jnp.concatenate([y, x], axis=1)
        newest = _last(mask)
        line = jnp.sum(newest * both, axis=0, keepdims=True)
        if without:  # the newest row is left out where it is the row itself
            before = jnp.sum(_last(mask * (1 - newest)) * both, axis=0, keepdims=True)
            line = newest * before + (1 - newest) * line
        parts.append(line)
    return jnp.concatenate(parts, axis=1)


def _last(mask: Float[Array, "K 1"]) -> Float[Array, "K 1"]:
    """One at the last row whose mask is one, zeros elsewhere."""
    place = mask * jnp.arange(1, len(mask) + 1, dtype=mask.dtype)[:, None]
    return mask * (place == jnp.max(place)).astype(mask.dtype)


def no_rows(out: int, features: int, ordered: bool, dtype: DTypeLike) -> np.ndarray:
    """The summary of no rows: zeros, but for the spread.

    >>> no_rows(1, 2, False, np.float64).tolist()
    [0.0, 0.001, 0.0, 0.0, 0.0]
    """
    size = 2 * out + 1 + features + ordered * (out + features)
    empty = np.zeros(size, dtype)
    empty[out : 2 * out] = np.sqrt(np.asarray(1e-6, dtype))
    return empty


class Fields(NamedTuple):
    """The fields of a summary."""

    y: Float[Array, " out"]
    spread: Float[Array, " out"]
    number: Float[Array, " 1"]
    x: Float[Array, " features"]
    newest: Float[Array, " _"]


def fields(summary: Float[Array, " summary"], out: int, features: int) -> Fields:
    """Split a summary into its fields."""
    ends = [out, 2 * out, 2 * out + 1, 2 * out + 1 + features]
    return Fields(*jnp.split(summary, ends))


def mean_of(sums: Float[Array, " n"], k: Float[Array, ""]) -> Float[Array, " n"]:
    """The mean of k rows from a field y or x; 0 for none."""
    return sums * (k + 1) / jnp.maximum(k, 1)


def merged(
    old: Float[Array, " summary"],
    k: Float[Array, ""],
    new: Float[Array, " summary"],
    n: Float[Array, ""],
    out: int,
    features: int,
) -> Float[Array, " summary"]:
    """The summary of k rows and n later ones, from the summaries of both."""
    a, b = fields(old, out, features), fields(new, out, features)
    mean = lambda a, b: (a * (k + 1) + b * (n + 1)) / (k + n + 1)
    between = k * n / jnp.maximum(k + n, 1) * (mean_of(a.y, k) - mean_of(b.y, n)) ** 2
    squares = a.spread**2 * (k + 1) + b.spread**2 * (n + 1) - 1e-6 + between
    spread = jnp.sqrt(jnp.maximum(squares, 1e-6) / (k + n + 1))
    number = ((k + n) / (k + n + 3))[None]
    newest = jnp.where(n > 0, b.newest, a.newest)
    return jnp.concatenate([mean(a.y, b.y), spread, number, mean(a.x, b.x), newest])
