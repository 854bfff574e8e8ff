"""How the inner gradient is differentiated: exactly, not at all, or by differences."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from moml.algorithms.parts.adapt import gradient_steps, layer_steps, learned_steps, named
from moml.algorithms.parts.curvature import exact, finite_difference, first_order
from moml.algorithms.parts.heads import closed_form
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.personal import personal_step
from moml.types import SampleSpec
from tests.algorithms.common import (
    HEAD,
    HYPER,
    K,
    assert_close,
    at,
    features,
    flat,
    head_loss,
    head_world,
    loss,
    quick_jit,
    sigmoid_world,
    visits_of,
)

BY_STEPS = {
    "one step": (gradient_steps, 1, {}),
    "three steps": (gradient_steps, 3, {}),
    "chosen leaves": (gradient_steps, 2, {"leaves": named("head")}),
    "learned steps": (learned_steps, 2, {}),
    "learned, chosen": (learned_steps, 2, {"leaves": named("head")}),
    "learned, tied": (learned_steps, 2, {"tied": named("head")}),
    "by layer": (layer_steps, 3, {}),
    "by layer, tied, chosen": (layer_steps, 2, {"leaves": named("head"), "tied": named("head")}),
}


def adaptation(kind: str, curvature: Any) -> Any:
    make, steps, options = BY_STEPS[kind]
    return make(loss, steps, curvature=curvature, **options)


def one_task(world: Any) -> Any:
    visits = visits_of(SampleSpec(3, support=K, query=K), world.tasks)
    return jax.tree.map(jnp.asarray, at(visits.task, (0, 0)))


def meta_gradient(task_loss: Any, A: Any, world: Any) -> Any:
    """Delta of one task without a memory."""
    step, task = personal_step(task_loss, A, none()), one_task(world)
    return quick_jit(lambda meta: step(meta, (), task, HYPER).delta)(A.init(world.params, HYPER))


def central_differences(task_loss: Any, A: Any, world: Any) -> np.ndarray:
    """Of w -> L(A(w; S1); S3) itself, coordinate by coordinate."""
    task, h = one_task(world), 1e-5
    meta, unravel = ravel_pytree(A.init(world.params, HYPER))

    def objective(row: Any) -> Any:
        meta = unravel(row)
        return task_loss(A.merge(meta, A.apply(meta, task.support, HYPER)), task.query)

    offsets = h * jnp.eye(meta.size)
    at = quick_jit(jax.vmap(lambda d: objective(meta + d)))
    return np.asarray(at(offsets) - at(-offsets)) / (2 * h)


@pytest.mark.parametrize("kind", BY_STEPS)
def test_exact_is_the_derivative_of_the_objective(kind):
    A, world = adaptation(kind, exact), sigmoid_world()
    want = central_differences(loss, A, world)
    assert_close(flat(meta_gradient(loss, A, world)), want, 1e-6)
    first = flat(meta_gradient(loss, adaptation(kind, first_order), world))
    assert np.abs(first - want).max() > 1e-2 * np.abs(want).max()  # curvature does matter here


def test_closed_form_is_the_derivative_of_the_objective():
    A, world = closed_form(features, lambda params: params["head"]), head_world()
    want = central_differences(head_loss, A, world)
    assert_close(flat(meta_gradient(head_loss, A, world)), want, 1e-6)
    assert np.all(np.abs(want[-3:]) > 1e-4)  # the variances are learned too


# Truncation is delta^2 times a fourth derivative, 1e-6; in float32 rounding, 1e-7 / delta, leads.
@pytest.mark.parametrize(
    ("dtype", "rtol"), [(np.float64, 1e-5), (np.float32, 3e-4)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("kind", BY_STEPS)
def test_finite_difference_is_close_to_exact(kind, dtype, rtol):
    world = sigmoid_world(dtype)
    got = meta_gradient(loss, adaptation(kind, finite_difference()), world)
    want = meta_gradient(loss, adaptation(kind, exact), world)
    assert {leaf.dtype for leaf in jax.tree.leaves(got)} == {jnp.dtype(dtype)}
    assert_close(flat(got), flat(want), rtol)


def test_finite_difference_ignores_the_size_of_the_direction():
    """A tiny cotangent must not be lost in rounding, nor a large one leave the neighbourhood."""
    world = sigmoid_world(np.float32)
    samples = one_task(world).support
    split = lambda p, rest, s: loss(p, s)
    _, pull = jax.vjp(lambda p: finite_difference()(split)(p, (), samples), world.params)
    _, exactly = jax.vjp(lambda p: exact(split)(p, (), samples), world.params)
    for size in (1e-12, 1.0, 1e6):
        c = jax.tree.map(lambda x, size=size: jnp.full_like(x, size), world.params)
        assert_close(flat(pull(c)), flat(exactly(c)), 1e-3)


@pytest.mark.parametrize("curvature", [exact, finite_difference()], ids=["exact", "difference"])
def test_gradient_reaches_what_does_not_adapt(curvature):
    """Through the adapted head: the body moves where the head's step leads."""
    world = sigmoid_world()
    to_head = {"leaves": named("head"), "curvature": curvature}
    delta = flat(meta_gradient(loss, gradient_steps(loss, **to_head), world))
    frozen = flat(
        meta_gradient(loss, gradient_steps(loss, **to_head | {"curvature": first_order}), world)
    )
    through = delta - frozen
    assert np.abs(through[~HEAD]).min() > 1e-3 * np.abs(delta).max()


def test_finite_difference_of_a_zero_cotangent_is_zero():
    world = sigmoid_world()
    A = gradient_steps(loss, 2, curvature=finite_difference(), leaves=named("head"))
    apply = lambda meta: A.apply(meta, one_task(world).support, HYPER)
    v, pull = jax.vjp(apply, world.params)
    (back,) = pull(jax.tree.map(jnp.zeros_like, v))
    assert np.all(flat(back) == 0)


@pytest.mark.parametrize("steps", [1, 3])
def test_first_order_is_the_gradient_at_the_adapted_point(steps):
    world = sigmoid_world()
    A = gradient_steps(loss, steps, curvature=first_order)
    task = one_task(world)
    v = A.apply(world.params, task.support, HYPER)
    assert np.abs(flat(v) - flat(world.params)).max() > 1e-2
    want = jax.grad(loss)(v, task.query)
    assert_close(flat(meta_gradient(loss, A, world)), flat(want), 1e-14)
