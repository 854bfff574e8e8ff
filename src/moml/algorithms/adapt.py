"""Adaptations A(w; S): from the meta-model and a few samples of a task to a personal model."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from moml.algorithms.curvature import Curvature, exact
from moml.types import Adapt, Hyper, Loss, Meta, Params, Personal

Leaves = Callable[[Params], PyTree[bool]]


def all_leaves(params: Params) -> PyTree[bool]:
    """Every leaf adapts."""
    return jax.tree.map(lambda _: True, params)


def named(pattern: str) -> Leaves:
    """The leaves whose path, written `body/0/weight`, matches a regular expression.

    >>> named("head")({"body": 1.0, "head": {"weight": 2.0, "bias": 3.0}})
    {'body': False, 'head': {'bias': True, 'weight': True}}
    """

    def leaves(params: Params) -> PyTree[bool]:
        def matches(path: Any, _: Any) -> bool:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            return re.search(pattern, name) is not None

        return jax.tree_util.tree_map_with_path(matches, params)

    return leaves


def _descend(loss: Loss, steps: int, curvature: Curvature, leaves: Leaves) -> Any:
    """k gradient steps on the chosen leaves, p <- p - rate * grad L(p; S), remembering k states."""
    grad = curvature(lambda p, rest, samples: loss(eqx.combine(p, rest), samples))

    def descend(params: Params, rate: Any, samples: Any) -> Personal:
        p, rest = eqx.partition(params, leaves(params))

        def one(p: Personal) -> Personal:
            g = grad(p, rest, samples)
            return jax.tree.map(lambda p, r, g: p - r * g, p, rate(p), g)  # v = w - alpha g(w)

        if steps == 1:
            return one(p)
        return jax.lax.scan(lambda p, _: (jax.checkpoint(one)(p), None), p, length=steps)[0]

    return descend


def gradient_steps(
    loss: Loss, steps: int = 1, *, curvature: Curvature = exact, leaves: Leaves = all_leaves
) -> Adapt:
    """k gradient steps of size alpha: the paper's A(w; S) = w - alpha grad L_S(w) for k = 1.

    >>> from moml.types import Hyper
    >>> A = gradient_steps(lambda w, target: 0.5 * (w - target) ** 2, steps=2)
    >>> float(A.apply(jnp.array(0.0), jnp.array(1.0), Hyper(eta=0.1, alpha=0.5)))
    0.75
    """
    descend = _descend(loss, steps, curvature, leaves)

    def start(meta: Meta) -> Personal:
        return eqx.filter(meta, leaves(meta))

    def apply(meta: Meta, samples: Any, hyper: Hyper) -> Personal:
        return descend(meta, lambda p: jax.tree.map(lambda _: hyper.alpha, p), samples)

    def merge(meta: Meta, p: Personal) -> Params:
        return eqx.combine(p, meta)

    return Adapt(lambda params, hyper: params, start, apply, merge)


class LearnedSteps(NamedTuple):
    """Meta-parameters of `learned_steps`: log alpha keeps every step size positive."""

    params: Params
    log_alpha: Personal


def learned_steps(
    loss: Loss, steps: int = 1, *, curvature: Curvature = exact, leaves: Leaves = all_leaves
) -> Adapt:
    """k gradient steps whose sizes are learned with w, one per parameter (Meta-SGD).

    v = w - exp(log_alpha) * grad L_S(w),   log_alpha starting at log(hyper.alpha) everywhere.
    """
    descend = _descend(loss, steps, curvature, leaves)

    def init(params: Params, hyper: Hyper) -> LearnedSteps:
        p = eqx.filter(params, leaves(params))
        log_alpha = jax.tree.map(lambda x: jnp.full_like(x, jnp.log(hyper.alpha)), p)
        return LearnedSteps(params, log_alpha)

    def start(meta: LearnedSteps) -> Personal:
        return eqx.filter(meta.params, leaves(meta.params))

    def apply(meta: LearnedSteps, samples: Any, hyper: Hyper) -> Personal:
        return descend(meta.params, lambda _: jax.tree.map(jnp.exp, meta.log_alpha), samples)

    def merge(meta: LearnedSteps, p: Personal) -> Params:
        return eqx.combine(p, meta.params)

    return Adapt(init, start, apply, merge)


class LinearHead(NamedTuple):
    """A linear output layer: prediction = features @ weight.T + bias."""

    weight: Float[Array, "out features"]
    bias: Float[Array, " out"]


class ClosedForm(NamedTuple):
    """Meta-parameters of `closed_form`: prior mean inside params, log variances beside."""

    params: Params
    log_prior: LinearHead  # of the weights and of the bias, one number each
    log_noise: Float[Array, ""]


def closed_form(features: Any, head: Callable[[Params], Any]) -> Adapt:
    """The posterior mean of a linear head under squared loss: no step size, one K x K solve.

    With features F of the support (K x f, a column of ones for the bias), prior mean w, prior
    variances S (diagonal), and noise variance s:

        v = w + S F' (F S F' + s I)^-1 (y - F w)

    `features(params, x)` gives [K, f]; `head(params)` points at an object with leaves `weight`
    [out, f] and `bias` [out]. Variances are learned with w, as logarithms that start at 0.
    """

    def init(params: Params, hyper: Hyper) -> ClosedForm:
        zero = jnp.zeros_like(head(params).bias[0])
        return ClosedForm(params, LinearHead(zero, zero), zero)

    def start(meta: ClosedForm) -> LinearHead:
        return LinearHead(head(meta.params).weight, head(meta.params).bias)

    def apply(meta: ClosedForm, samples: Any, hyper: Hyper) -> LinearHead:
        w = start(meta)
        f = features(meta.params, samples.x)
        y = samples.y.reshape(f.shape[0], -1)
        mask = jnp.ones_like(y[:, 0]) if samples.mask is None else samples.mask.astype(y.dtype)
        real = jax.vmap(jnp.multiply)
        f, ones = real(mask, f), mask  # a padded row is a row of zeros with residual zero
        residual = real(mask, y - f @ w.weight.T - jnp.outer(ones, w.bias))
        prior = jax.tree.map(jnp.exp, meta.log_prior)
        gram = prior.weight * (f @ f.T) + prior.bias * jnp.outer(ones, ones)
        noise = jnp.exp(meta.log_noise) * jnp.eye(f.shape[0], dtype=f.dtype)
        dual = jax.scipy.linalg.solve(gram + noise, residual, assume_a="pos")
        weight = w.weight + prior.weight * (dual.T @ f)
        return LinearHead(weight, w.bias + prior.bias * (dual.T @ ones))

    def merge(meta: ClosedForm, p: LinearHead) -> Params:
        where = partial(_head_leaves, head)
        return eqx.tree_at(where, meta.params, (p.weight, p.bias))

    return Adapt(init, start, apply, merge)


def _head_leaves(head: Callable[[Params], Any], params: Params) -> tuple[Any, Any]:
    return head(params).weight, head(params).bias
