"""Later rows of tasks that are known already: their kept parameters go on, their rows are gone.

What sums up a task (means, spread, number) is merged, as if of all rows at once. A head in closed
form starts from the kept one, bound by as many earlier rows: they are taken to have lain about
their mean as the new ones lie about theirs. Gradient steps start from the kept leaves and are as
small as after so many rows.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.algorithms.parts.adapt import ShrinkingSteps
from moml.algorithms.parts.heads import ClosedForm, LinearHead, posterior_mean
from moml.algorithms.tabular.members import Parts, PersonalParams, Shape, parts, targets
from moml.algorithms.tabular.summary import beside, summary_of
from moml.algorithms.tabular.summary_merge import fields, mean_of, merged
from moml.models.networks import Model
from moml.models.table import BOUND, Knots, squash
from moml.types import Batch, Hyper, Meta, Personal


class Earlier(NamedTuple):
    """What is known of a task's earlier rows: their number, and their mean [x, summary]."""

    rows: Float[Array, ""]
    mean: Float[Array, " inputs"]


@cache
def updated(shape: Shape, kinds: tuple[str, ...]) -> Any:
    """The compiled update: (knots, metas, kept, known rows, batch of further rows) -> kept."""
    out, features = shape.classes or 1, shape.features
    summarise, leave_out = summary_of(squash, lambda y: targets(shape, y), shape.ordered)
    both = lambda old, k, new, n: merged(old, k, new, n, out, features)

    def run(
        at: Knots, metas: dict[str, Meta], kept: PersonalParams, known: Any, batch: Batch
    ) -> PersonalParams:
        made = {kind: parts(kind, shape, at) for kind in kinds}

        def go_on(kept: PersonalParams, rows: Batch, then: Earlier) -> dict[str, Any]:
            on = lambda kind: lambda meta, p: _go_on(made[kind], meta, p, rows, then)
            return {kind: jax.vmap(on(kind))(metas[kind], kept.heads[kind]) for kind in kinds}

        def one(kept: PersonalParams, k: Any, samples: Batch) -> PersonalParams:
            if not kept.summary.size:  # of a user's own network
                then = Earlier(k, kept.summary)
                return PersonalParams(kept.summary, go_on(kept, samples, then))
            n = jnp.sum(samples.mask)
            others = jax.vmap(lambda s: both(kept.summary, k, s, jnp.maximum(n - 1, 0)))
            rows = samples._replace(x=beside(samples.x, others(leave_out(samples))))
            mean = mean_of(fields(kept.summary, out, features).x, k) / BOUND
            x = BOUND * jnp.arctanh(jnp.clip(mean, -0.99, 0.99))  # squash, undone
            then = Earlier(k, jnp.concatenate([x, kept.summary]))
            return PersonalParams(
                both(kept.summary, k, summarise(samples), n), go_on(kept, rows, then)
            )

        return jax.vmap(one)(kept, known, jax.tree.map(jnp.asarray, batch))

    return jax.jit(run)


def _go_on(made: Parts, meta: Meta, p: Personal, rows: Batch, then: Earlier) -> Personal:
    """One member's personal parameters after further rows."""
    if not jax.tree.leaves(p):
        return p
    params = made.inner.merge(meta, p)
    if isinstance(meta, ShrinkingSteps):
        later = meta._replace(params=params, log_tau=jnp.log(jnp.exp(meta.log_tau) + then.rows))
        return made.inner.apply(later, rows, Hyper(eta=0.0))
    if isinstance(meta, ClosedForm):
        return _head(made.net, meta, params, p, rows, then)
    raise TypeError(f"no way to go on from {type(meta).__name__}")


def _head(
    net: Model, meta: ClosedForm, params: Any, p: LinearHead, rows: Batch, then: Earlier
) -> LinearHead:
    """The posterior mean from the kept head on, which the earlier rows bind with residuals 0."""
    features: Any = net.features
    real = (rows.mask > 0).astype(rows.x.dtype)[:, None]
    y = rows.y.reshape(len(rows.y), -1)
    ones = lambda f: jnp.concatenate([f, jnp.ones_like(f[:, :1])], axis=1)
    f = ones(features(params, rows.x)) * real
    n = jnp.maximum(jnp.sum(real), 1)
    centre = ones(features(params, then.mean[None]))
    about = f - (jnp.sum(f, axis=0) / n)[None] + centre
    earlier = about * real * jnp.sqrt(then.rows / n)
    residual = (y - net.predict(params, rows.x)) * real
    width = jnp.broadcast_to(jnp.exp(meta.log_prior.weight), p.weight.shape[1:])
    prior = jnp.concatenate([width, jnp.exp(meta.log_prior.bias)[None]])
    both = jnp.concatenate([residual, jnp.zeros_like(residual)])
    noise = jnp.exp(meta.log_noise)
    move = posterior_mean(jnp.concatenate([f, earlier]), both, prior, noise)
    return LinearHead(p.weight + move[:-1].T, p.bias + move[-1])
