"""Update kept personal parameters with later rows of their tasks; the earlier rows are gone.

Summaries merge exactly, as if computed from all rows at once. A closed-form head starts from the
kept one and is bound by as many pseudo-rows as there were earlier rows: they are assumed to have
scattered about their mean as the new rows scatter about theirs. Gradient steps start from the kept
leaves and are as small as after that many rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.algorithms.parts.adapt import ShrinkingSteps
from moml.algorithms.parts.heads import ClosedForm, LinearHead, posterior_mean
from moml.algorithms.tabular.members import Parts, PersonalParams, Shape, parts, targets
from moml.algorithms.tabular.summary import beside, fields, mean_of, merged, summary_of
from moml.models.networks import Model
from moml.models.table import BOUND, Knots, squash
from moml.types import Batch, Hyper, Meta, Params, Personal


class Earlier(NamedTuple):
    """What is known of a task's earlier rows: their number, and their mean [x, summary]."""

    rows: Float[Array, ""]
    mean: Float[Array, " inputs"]


def update_program(shape: Shape, kinds: tuple[str, ...]) -> Callable[..., PersonalParams]:
    """The update: (knots, metas, personal, row counts, later rows) -> personal."""
    out, features = shape.classes or 1, shape.features
    summarise, leave_out = summary_of(squash, lambda y: targets(shape, y), shape.ordered)
    merge = lambda old, k, new, n: merged(old, k, new, n, out, features)

    def run(
        at: Knots, metas: dict[str, Meta], personal: PersonalParams, counts: jax.Array, batch: Batch
    ) -> PersonalParams:
        made = {kind: parts(kind, shape, at) for kind in kinds}

        def heads_after(old: PersonalParams, rows: Batch, earlier: Earlier) -> dict[str, Personal]:
            on = lambda kind: lambda meta, p: _updated(made[kind], meta, p, rows, earlier)
            return {kind: jax.vmap(on(kind))(metas[kind], old.heads[kind]) for kind in kinds}

        def one(old: PersonalParams, k: jax.Array, samples: Batch) -> PersonalParams:
            if not old.summary.size:  # a user's network has no summary
                earlier = Earlier(k, old.summary)
                return PersonalParams(old.summary, heads_after(old, samples, earlier))
            n = jnp.sum(samples.mask)
            others = jax.vmap(lambda s: merge(old.summary, k, s, jnp.maximum(n - 1, 0)))
            rows = samples._replace(x=beside(samples.x, others(leave_out(samples))))
            mean = mean_of(fields(old.summary, out, features).x, k) / BOUND
            x = BOUND * jnp.arctanh(jnp.clip(mean, -0.99, 0.99))  # the inverse of squash
            earlier = Earlier(k, jnp.concatenate([x, old.summary]))
            summary = merge(old.summary, k, summarise(samples), n)
            return PersonalParams(summary, heads_after(old, rows, earlier))

        return jax.vmap(one)(personal, counts, jax.tree.map(jnp.asarray, batch))

    return run


def _updated(made: Parts, meta: Meta, p: Personal, rows: Batch, earlier: Earlier) -> Personal:
    """One member's personal parameters after later rows."""
    if not jax.tree.leaves(p):
        return p
    params = made.inner.merge(meta, p)
    if isinstance(meta, ShrinkingSteps):
        tau = jnp.exp(meta.log_tau) + earlier.rows
        return made.inner.apply(
            meta._replace(params=params, log_tau=jnp.log(tau)), rows, Hyper(eta=0.0)
        )
    if isinstance(meta, ClosedForm):
        return _head(made.net, meta, params, p, rows, earlier)
    raise TypeError(f"cannot update {type(meta).__name__}")


def _head(
    net: Model, meta: ClosedForm, params: Params, p: LinearHead, rows: Batch, earlier: Earlier
) -> LinearHead:
    """The posterior mean from the kept head on; pseudo-rows of earlier rows have residual 0."""
    if net.features is None:
        raise TypeError("a closed-form head needs a network with features")
    real = (rows.mask > 0).astype(rows.x.dtype)[:, None]
    y = rows.y.reshape(len(rows.y), -1)
    ones = lambda f: jnp.concatenate([f, jnp.ones_like(f[:, :1])], axis=1)
    f = ones(net.features(params, rows.x)) * real
    n = jnp.maximum(jnp.sum(real), 1)
    centre = ones(net.features(params, earlier.mean[None]))
    around = f - (jnp.sum(f, axis=0) / n)[None] + centre
    pseudo = around * real * jnp.sqrt(earlier.rows / n)
    residual = (y - net.predict(params, rows.x)) * real
    width = jnp.broadcast_to(jnp.exp(meta.log_prior.weight), p.weight.shape[1:])
    prior = jnp.concatenate([width, jnp.exp(meta.log_prior.bias)[None]])
    both = jnp.concatenate([residual, jnp.zeros_like(residual)])
    noise = jnp.exp(meta.log_noise)
    move = posterior_mean(jnp.concatenate([f, pseudo]), both, prior, noise)
    return LinearHead(p.weight + move[:-1].T, p.bias + move[-1])
