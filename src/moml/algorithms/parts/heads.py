"""Adaptations of a linear head alone, in closed form: no gradient step, no step size."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from moml.types import Adapt, Hyper, Params, Samples


class LinearHead(NamedTuple):
    """A linear output layer: prediction = features @ weight.T + bias."""

    weight: Float[Array, "out features"]
    bias: Float[Array, " out"]


class ClosedForm(NamedTuple):
    """Meta-parameters of `closed_form`: prior mean inside params, log variances beside."""

    params: Params
    log_prior: LinearHead  # of the weights (one number, or one a feature) and of the bias
    log_noise: Float[Array, ""]


def closed_form(
    features: PyTree,
    head: Callable[[Params], PyTree],
    *,
    beside: Callable[[Params, PyTree], PyTree] | None = None,
    by_feature: bool = False,
    log_prior: float = 0.0,
) -> Adapt:
    """The posterior mean of a linear head under squared loss: no step size, one K x K solve.

    With features F of the support (K x f, a column of ones for the bias), prior mean w, prior
    variances S (diagonal), and noise variance s:

        v = w + S F' (F S F' + s I)^-1 (y - F w)

    `features(params, x)` gives [K, f]; `head(params)` points at an object with leaves `weight`
    [out, f] and `bias` [out]. Where the head is not all of the prediction, `beside(params, x)` is
    added to F w. Variances are learned with w, as logarithms: the weights', which
    start at `log_prior`, share one, or with `by_feature` have one each. With more rows than
    features the same v comes from an f x f solve.
    """

    def init(params: Params, hyper: Hyper) -> ClosedForm:
        zero = jnp.zeros_like(head(params).bias[0])
        weight = jnp.zeros_like(head(params).weight[0]) if by_feature else zero
        return ClosedForm(params, LinearHead(weight + log_prior, zero), zero)

    def start(meta: ClosedForm) -> LinearHead:
        return LinearHead(head(meta.params).weight, head(meta.params).bias)

    def apply(meta: ClosedForm, samples: Samples, hyper: Hyper) -> LinearHead:
        w = start(meta)
        f = features(meta.params, samples.x)
        y = samples.y.reshape(f.shape[0], -1)
        real = jnp.ones(len(f), bool) if samples.mask is None else samples.mask > 0
        before = f @ w.weight.T + w.bias[None]
        if beside is not None:
            before = before + beside(meta.params, samples.x)
        only = jax.vmap(lambda real, x: jnp.where(real, x, 0))  # padding: zeros, residual zero
        residual = only(real, y - before)
        f = only(real, jnp.concatenate([f, jnp.ones_like(f[:, :1])], axis=1))
        width = jnp.broadcast_to(jnp.exp(meta.log_prior.weight), w.weight.shape[1:])
        prior = jnp.concatenate([width, jnp.exp(meta.log_prior.bias)[None]])
        move = posterior_mean(f, residual, prior, jnp.exp(meta.log_noise))
        return LinearHead(w.weight + move[:-1].T, w.bias + move[-1])

    def merge(meta: ClosedForm, p: LinearHead) -> Params:
        return with_head(meta.params, head, p)

    return Adapt(init, start, apply, merge)


def posterior_mean(
    f: Float[Array, "K f"],
    y: Float[Array, "K out"],
    prior: Float[Array, " f"],
    noise: Float[Array, ""],
) -> Float[Array, "f out"]:
    """S F' (F S F' + s I)^-1 y, by the smaller of two solves: with R = F S^(1/2), K x K or f x f.

    S^(1/2) R' (R R' + s I)^-1 y  =  S^(1/2) (R' R + s I)^-1 R' y
    """
    root = f * jnp.sqrt(prior)[None]
    damp = lambda gram: gram + noise * jnp.eye(len(gram), dtype=f.dtype)
    solve = lambda gram, y: jax.scipy.linalg.solve(damp(gram), y, assume_a="pos")
    few = len(f) <= f.shape[1]
    dual = root.T @ solve(root @ root.T, y) if few else solve(root.T @ root, root.T @ y)
    return jnp.sqrt(prior)[:, None] * dual


def prototypes(features: PyTree, head: Callable[[Params], PyTree]) -> Adapt:
    """ProtoNet's classifier as an adaptation: the class nearest in the embedding.

    With c_j the mean embedding of the support of class j, and f that of a query,

        -|f - c_j|^2  =  2 c_j' f - |c_j|^2 - |f|^2,

    the last term being the same for all classes: a linear head of weight 2 c_j, bias -|c_j|^2.
    """

    def start(meta: Params) -> LinearHead:
        return LinearHead(head(meta).weight, head(meta).bias)

    def apply(meta: Params, samples: Samples, hyper: Hyper) -> LinearHead:
        f = features(meta, samples.x)
        one_hot = jax.nn.one_hot(samples.y, len(head(meta).bias), dtype=f.dtype)
        if samples.mask is not None:
            one_hot = one_hot * samples.mask.astype(f.dtype)[:, None]
        each = jnp.maximum(jnp.sum(one_hot, axis=0), 1)
        c = (one_hot.T @ f) / each[:, None]
        return LinearHead(2 * c, -jnp.sum(c**2, axis=1))

    def merge(meta: Params, p: LinearHead) -> Params:
        return with_head(meta, head, p)

    return Adapt(lambda params, hyper: params, start, apply, merge)


def head_of(params: Params) -> PyTree:
    """The layer named head: an attribute of the parameters, or an item of a dictionary."""
    return params["head"] if isinstance(params, dict) else params.head


def with_head(params: Params, head: Callable[[Params], PyTree], p: LinearHead) -> Params:
    """The same parameters with another linear head."""
    leaves, tree = jax.tree.flatten(params)
    places = head(jax.tree.unflatten(tree, range(len(leaves))))  # which are the head's
    leaves[places.weight], leaves[places.bias] = p.weight, p.bias
    return jax.tree.unflatten(tree, leaves)
