"""Adaptations of a linear head alone, in closed form: no gradient step, no step size."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.types import Adapt, Hyper, Params


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
        return _with_head(meta.params, head, p)

    return Adapt(init, start, apply, merge)


def prototypes(features: Any, head: Callable[[Params], Any]) -> Adapt:
    """ProtoNet's classifier as an adaptation: the class nearest in the embedding.

    With c_j the mean embedding of the support of class j, and f that of a query,

        -|f - c_j|^2  =  2 c_j' f - |c_j|^2 - |f|^2,

    the last term being the same for all classes: a linear head of weight 2 c_j, bias -|c_j|^2.
    """

    def start(meta: Params) -> LinearHead:
        return LinearHead(head(meta).weight, head(meta).bias)

    def apply(meta: Params, samples: Any, hyper: Hyper) -> LinearHead:
        f = features(meta, samples.x)
        one_hot = jax.nn.one_hot(samples.y, len(head(meta).bias), dtype=f.dtype)
        if samples.mask is not None:
            one_hot = one_hot * samples.mask.astype(f.dtype)[:, None]
        each = jnp.maximum(jnp.sum(one_hot, axis=0), 1)
        c = (one_hot.T @ f) / each[:, None]
        return LinearHead(2 * c, -jnp.sum(c**2, axis=1))

    def merge(meta: Params, p: LinearHead) -> Params:
        return _with_head(meta, head, p)

    return Adapt(lambda params, hyper: params, start, apply, merge)


def _with_head(params: Params, head: Callable[[Params], Any], p: LinearHead) -> Params:
    where = lambda params: (head(params).weight, head(params).bias)
    return eqx.tree_at(where, params, (p.weight, p.bias))
