"""Adaptations A(w; S): from the meta-model and a few samples of a task to a personal model."""

import re
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from moml.algorithms.parts.curvature import Curvature, exact
from moml.kept import kept
from moml.types import Adapt, Hyper, Loss, Meta, Params, Personal, Samples

Leaves = Callable[[Params], PyTree[bool]]


def all_leaves(params: Params) -> PyTree[bool]:
    """Every leaf adapts."""
    return jax.tree.map(lambda _: True, params)


@kept
def named(pattern: str) -> Leaves:
    """The leaves whose path, written `body/0/weight`, matches a regular expression.

    >>> named("head")({"body": 1.0, "head": {"weight": 2.0, "bias": 3.0}})
    {'body': False, 'head': {'bias': True, 'weight': True}}
    """

    def leaves(params: Params) -> PyTree[bool]:
        matches = [re.search(pattern, name) is not None for name in leaf_names(params)]
        return jax.tree.unflatten(jax.tree.structure(params), matches)

    return leaves


def leaf_names(params: Params) -> list[str]:
    """The path of every leaf."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]


def no_leaves(params: Params) -> PyTree[bool]:
    """None of the leaves."""
    return jax.tree.map(lambda _: False, params)


def without_state(leaves: Leaves, loss: Loss) -> Leaves:
    """The chosen leaves that are not state of a loss, such as batch statistics."""
    state = getattr(loss, "state", None)
    if state is None:
        return leaves
    both = lambda chosen, fixed: chosen and not fixed
    return lambda params: jax.tree.map(both, leaves(params), state(params))


def equal_rows(params: Params, leaves: Leaves) -> Params:
    """The same parameters, every row of the chosen leaves being the mean of their rows.

    >>> equal_rows({"head": jnp.array([[1.0, 2.0], [3.0, 6.0]])}, named("head"))["head"].tolist()
    [[2.0, 4.0], [2.0, 4.0]]
    """
    mean = lambda x: jnp.broadcast_to(jnp.mean(x, axis=0, keepdims=True), x.shape)
    return jax.tree.map(lambda x, chosen: mean(x) if chosen else x, params, leaves(params))


def pick(params: Params, chosen: PyTree[bool]) -> Personal:
    """The chosen leaves, None in place of the others."""
    return jax.tree.map(lambda x, keep: x if keep else None, params, chosen)


def combine(first: PyTree, second: PyTree) -> PyTree:
    """The leaves of the first tree, and where it has None those of the second."""
    other = lambda a, b: b if a is None else a
    return jax.tree.map(other, first, second, is_leaf=lambda x: x is None)


Rates = Callable[[Int[Array, ""]], PyTree]  # number of the step -> step sizes, a tree like p


class _Rule(NamedTuple):
    """Where step sizes are from: the meta-parameters, w among them, the sizes of a task's steps."""

    init: Callable[[Params, Personal, Hyper], Meta]
    params_of: Callable[[Meta], Params]
    rates_of: Callable[[Meta, Personal, Samples, Hyper], Rates]


def _steps(
    loss: Loss, steps: int, curvature: Curvature, leaves: Leaves, tied: Leaves, rule: _Rule
) -> Adapt:
    """k gradient steps on the chosen leaves, p <- p - rate * grad L(p; S), remembering k states."""
    leaves = without_state(leaves, loss)
    grad = curvature(lambda p, rest, samples: loss(combine(p, rest), samples))
    whole = lambda meta: equal_rows(rule.params_of(meta), tied)

    def init(params: Params, hyper: Hyper) -> Meta:
        return rule.init(params, pick(params, leaves(params)), hyper)

    def start(meta: Meta) -> Personal:
        return pick(whole(meta), leaves(rule.params_of(meta)))

    def apply(meta: Meta, samples: Samples, hyper: Hyper) -> Personal:
        params, chosen = whole(meta), leaves(rule.params_of(meta))
        p, rest = pick(params, chosen), pick(params, jax.tree.map(lambda keep: not keep, chosen))
        rates = rule.rates_of(meta, p, samples, hyper)

        def one(p: Personal, t: Int[Array, ""]) -> Personal:
            g = grad(p, rest, samples)
            return jax.tree.map(lambda p, r, g: p - r * g, p, rates(t), g)  # v = w - alpha g(w)

        if steps == 1:
            return one(p, jnp.zeros((), jnp.int32))
        each = jnp.arange(steps, dtype=jnp.int32)
        return jax.lax.scan(lambda p, t: (jax.checkpoint(one)(p, t), None), p, each)[0]

    def merge(meta: Meta, p: Personal) -> Params:
        return combine(p, whole(meta))

    return Adapt(init, start, apply, merge)


def gradient_steps(
    loss: Loss,
    steps: int = 1,
    *,
    curvature: Curvature = exact,
    leaves: Leaves = all_leaves,
    tied: Leaves = no_leaves,
) -> Adapt:
    """k gradient steps of size alpha: the paper's A(w; S) = w - alpha grad L_S(w) for k = 1.

    Only `leaves` adapt. Those of `tied` begin with equal rows, the mean of w's: a head whose
    classes begin alike does not care in which order they are numbered.

    >>> from moml.types import Hyper
    >>> A = gradient_steps(lambda w, target: 0.5 * (w - target) ** 2, steps=2)
    >>> float(A.apply(jnp.array(0.0), jnp.array(1.0), Hyper(eta=0.1, alpha=0.5)))
    0.75
    """
    alike = lambda meta, p, samples, hyper: lambda t: jax.tree.map(lambda _: hyper.alpha, p)
    rule = _Rule(lambda params, p, hyper: params, lambda meta: meta, alike)
    return _steps(loss, steps, curvature, leaves, tied, rule)


class LearnedSteps(NamedTuple):
    """Meta-parameters of `learned_steps`: log alpha keeps every step size positive."""

    params: Params
    log_alpha: PyTree


def _learned(like: Callable[[Array], Array], at: Callable[[Array, Array], Array]) -> _Rule:
    """Sizes that are learned: `like` shapes a leaf's log alpha, `at` reads it at step t."""

    def init(params: Params, p: Personal, hyper: Hyper) -> LearnedSteps:
        return LearnedSteps(params, jax.tree.map(lambda x: like(x) * jnp.log(hyper.alpha), p))

    def own(meta: LearnedSteps, p: Personal, samples: Samples, hyper: Hyper) -> Rates:
        return lambda t: jax.tree.map(lambda log: jnp.exp(at(log, t)), meta.log_alpha)

    return _Rule(init, lambda meta: meta.params, own)


def learned_steps(
    loss: Loss,
    steps: int = 1,
    *,
    curvature: Curvature = exact,
    leaves: Leaves = all_leaves,
    tied: Leaves = no_leaves,
) -> Adapt:
    """k gradient steps whose sizes are learned with w, one per parameter (Meta-SGD).

    v = w - exp(log_alpha) * grad L_S(w),   log_alpha starting at log(hyper.alpha) everywhere.
    """
    rule = _learned(jnp.ones_like, lambda log, t: log)
    return _steps(loss, steps, curvature, leaves, tied, rule)


def layer_steps(
    loss: Loss,
    steps: int = 1,
    *,
    curvature: Curvature = exact,
    leaves: Leaves = all_leaves,
    tied: Leaves = no_leaves,
) -> Adapt:
    """k gradient steps whose sizes are learned with w, one per leaf and step (MAML++).

    p <- p - exp(log_alpha[leaf, t]) * grad L_S(p),   t = 0 .. k - 1. Later steps than those that
    were trained take the size of the last one.
    """
    like = lambda x: jnp.ones(steps, x.dtype)
    at = lambda log, t: log[jnp.minimum(t, len(log) - 1)]
    return _steps(loss, steps, curvature, leaves, tied, _learned(like, at))


class ShrinkingSteps(NamedTuple):
    """Meta-parameters of `shrinking_steps`: log alpha by parameter, and log tau."""

    params: Params
    log_alpha: PyTree
    log_tau: Float[Array, ""]


def shrinking_steps(loss: Loss, steps: int = 1, *, leaves: Leaves = all_leaves) -> Adapt:
    """k gradient steps whose sizes are learned, and small where few rows are known.

    p <- p - exp(log_alpha) * K / (K + tau) * grad L_S(p) for a support of K real rows; log_alpha
    starts at log(hyper.alpha), tau at 3, and both are learned with w.
    """

    def init(params: Params, p: Personal, hyper: Hyper) -> ShrinkingSteps:
        log_alpha = jax.tree.map(lambda x: jnp.ones_like(x) * jnp.log(hyper.alpha), p)
        return ShrinkingSteps(params, log_alpha, jnp.log(jnp.full_like(hyper.alpha, 3.0)))

    def own(meta: ShrinkingSteps, p: Personal, samples: Samples, hyper: Hyper) -> Rates:
        dtype = meta.log_tau.dtype
        mask = jnp.ones(len(samples.y)) if samples.mask is None else samples.mask
        rows = jnp.sum(mask > 0).astype(dtype)
        shrink = rows / (rows + jnp.exp(meta.log_tau))
        return lambda t: jax.tree.map(lambda log: shrink * jnp.exp(log), meta.log_alpha)

    rule = _Rule(init, lambda meta: meta.params, own)
    return _steps(loss, steps, exact, leaves, no_leaves, rule)


def nothing_adapts() -> Adapt:
    """A(w; S) = w, with no personal parameters: for what else a task may be known by."""
    return Adapt(
        init=lambda params, hyper: params,
        start=lambda meta: (),
        apply=lambda meta, samples, hyper: (),
        merge=lambda meta, p: meta,
    )
