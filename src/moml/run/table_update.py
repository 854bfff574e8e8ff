"""Later rows of tasks that are known already: their kept parameters go on, their rows are gone.

What is summed up of a task (means, spread, number) is merged, with the same result as of all rows
at once. A head in closed form starts from the kept one, with the variances that the earlier rows
left of its prior if those looked like the new ones; gradient steps start from the kept leaves and
are as small as after so many rows.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.adapt import ShrinkingSteps
from moml.algorithms.heads import ClosedForm, LinearHead, posterior_mean
from moml.algorithms.summary import beside, merged, summary_of
from moml.algorithms.table import Parts, Shape, parts, targets
from moml.models.table import Knots, squash
from moml.run.table_model import CHUNK, Own, TableModel, as_target, padded
from moml.types import Batch, Hyper, Meta, Personal


def extended(model: TableModel, own: Own, known: Any, x: Any, y: Any, groups: Sequence[Any]) -> Own:
    """What is personal to each task after further rows groups[i], of known[i] earlier ones."""
    x, y, known = np.asarray(x, np.float32), as_target(model.shape, y), np.asarray(known)
    update = _update(model.shape, tuple(model.metas))
    found, order = [], []
    for some, width in _alike(groups):
        size = 1 << max(0, len(some) - 1).bit_length()
        batch = padded(x, y, [groups[i] for i in some], width, size)
        at = np.concatenate([some, np.repeat(some[:1], size - len(some))])
        kept = jax.tree.map(lambda leaf, at=at: leaf[at], own)
        new = update(model.knots, model.metas, kept, known[at].astype(batch.mask.dtype), batch)
        found.append(jax.tree.map(lambda leaf, n=some.size: np.asarray(leaf[:n]), new))
        order.append(some)
    back = np.argsort(np.concatenate(order))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[back], *found)


def _alike(groups: Sequence[Any]) -> Iterator[tuple[np.ndarray, int]]:
    """Tasks of about the same number of rows, some at a time, and the width that fits them."""
    sizes = np.maximum([len(rows) for rows in groups], 1)
    width = 2 ** np.ceil(np.log2(sizes)).astype(int)
    for w in np.unique(width):
        every = np.flatnonzero(width == w)
        for first in range(0, len(every), CHUNK):
            yield every[first : first + CHUNK], int(w)


@cache
def _update(shape: Shape, kinds: tuple[str, ...]) -> Any:
    out = shape.classes or 1
    summarise, leave_out = summary_of(squash, lambda y: targets(shape, y), shape.ordered)
    both = lambda old, k, new, n: merged(old, k, new, n, out, shape.ordered)

    def run(at: Knots, metas: dict[str, Meta], kept: Own, known: Any, batch: Batch) -> Own:
        made = {kind: parts(kind, shape, at) for kind in kinds}

        def one(kept: Own, k: Any, samples: Batch) -> Own:
            if not kept.summary.size:
                return kept
            n = jnp.sum(samples.mask)
            others = jax.vmap(lambda s: both(kept.summary, k, s, jnp.maximum(n - 1, 0)))
            rows = samples._replace(x=beside(samples.x, others(leave_out(samples))))
            own = {
                kind: jax.vmap(lambda meta, p, made=made[kind]: _go_on(made, meta, p, k, rows))(
                    metas[kind], kept.own[kind]
                )
                for kind in kinds
            }
            return Own(both(kept.summary, k, summarise(samples), n), own)

        return jax.vmap(one)(kept, known, jax.tree.map(jnp.asarray, batch))

    return jax.jit(run)


def _go_on(made: Parts, meta: Meta, p: Personal, k: Any, rows: Batch) -> Personal:
    """One member's personal parameters after further rows, k being known."""
    if not jax.tree.leaves(p):
        return p
    params = made.inner.merge(meta, p)
    if isinstance(meta, ShrinkingSteps):
        later = meta._replace(params=params, log_tau=jnp.log(jnp.exp(meta.log_tau) + k))
        return made.inner.apply(later, rows, Hyper(eta=0.0))
    if isinstance(meta, ClosedForm):
        return _head(made, meta, params, p, k, rows)
    raise AssertionError(f"no way to go on from {type(meta).__name__}")


def _head(
    made: Parts, meta: ClosedForm, params: Any, p: LinearHead, k: Any, rows: Batch
) -> LinearHead:
    """The posterior mean from the kept head on; k earlier rows like the new ones bind it."""
    features = made.net.features
    if features is None:
        raise AssertionError("a closed-form head is one of features")
    real = (rows.mask > 0).astype(rows.x.dtype)[:, None]
    y = rows.y.reshape(len(rows.y), -1)
    f = jnp.concatenate([features(params, rows.x), jnp.ones_like(real)], axis=1) * real
    residual = (y - made.net.predict(params, rows.x)) * real
    earlier = f * jnp.sqrt(k / jnp.maximum(jnp.sum(real), 1))  # as many rows as k, residual 0
    width = jnp.broadcast_to(jnp.exp(meta.log_prior.weight), p.weight.shape[1:])
    prior = jnp.concatenate([width, jnp.exp(meta.log_prior.bias)[None]])
    move = posterior_mean(
        jnp.concatenate([f, earlier]),
        jnp.concatenate([residual, jnp.zeros_like(residual)]),
        prior,
        jnp.exp(meta.log_noise),
    )
    return LinearHead(p.weight + move[:-1].T, p.bias + move[-1])
