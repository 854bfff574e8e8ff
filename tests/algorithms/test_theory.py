"""v2's theoretical step sizes, and the constants they rest on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.single.theory import (
    check_eta0,
    estimate_smoothness,
    largest_eta0,
    theoretical_steps,
)
from moml.errors import ConfigError
from moml.methods import method
from moml.types import SampleSpec
from tests.algorithms.common import (
    HYPER,
    B,
    K,
    N,
    T,
    assert_close,
    at,
    draws,
    flat,
    loss,
    quick_jit,
    run,
    sigmoid_world,
    visits_of,
)
from tests.reference.adaptation import gradient_steps
from tests.reference.moml_v2 import moml_v2
from tests.reference.problem import SIGMOID
from tests.reference.theoretical_steps import theoretical_steps as slow_sizes

L, RHO, ETA0 = 0.8, 1.7, 0.25


def wrapped(**options: Any) -> tuple[Any, Any]:
    m = method("moml-v2", loss, n=N, tasks_per_step=B, k=K, **options)
    need = SampleSpec(4, support=3)
    return m, theoretical_steps(m.algorithm, loss, need, smoothness=L, hessian_lipschitz=RHO)


@pytest.mark.parametrize("two", [False, True], ids=["one batch", "two batches"])
def test_step_sizes_follow_the_theorem(two):
    world, hyper = sigmoid_world(), HYPER._replace(eta=ETA0)
    m, algorithm = wrapped(two_batches=two)
    visits = visits_of(algorithm.needs, world.tasks)
    each = [at(visits, t) for t in range(T)]
    pairs = [(v.visits.memory, v.visits.meta) if two else (v.visits,) * 2 for v in each]
    extra = [draws(v.lipschitz) for v in each]
    sizes = slow_sizes(SIGMOID, extra, eta0=ETA0, alpha=HYPER.alpha, L=L, rho=RHO)
    seen = []

    def noted(t: int, w: np.ndarray) -> tuple[float, float]:
        seen.append(sizes(t, w))
        return seen[-1]

    A, w = gradient_steps(SIGMOID, HYPER.alpha), flat(world.params)
    batches = [(draws(a), draws(b)) for a, b in pairs]
    path, u = moml_v2(A, w, batches, n=N, sizes=noted)
    state, metas, _ = run(algorithm, algorithm.init(world.params, hyper), visits, hyper)
    assert_close(metas, path, 1e-12)
    rows = m.memory.recall(state.inner.memory, jnp.arange(N))[0]
    assert_close(flat(rows, lead=1), np.stack([u[i] for i in range(N)]), 1e-12)
    np.testing.assert_allclose(state.eta, seen[-1][0], rtol=1e-12)
    betas = [beta for _, beta in seen]
    assert 0 < min(betas) < max(betas) <= 1


def test_step_sizes_keep_single_precision():
    world, hyper = sigmoid_world(np.float32), HYPER._replace(eta=ETA0)
    _, algorithm = wrapped()
    visits = visits_of(algorithm.needs, world.tasks, 3)
    state, _, _ = run(algorithm, algorithm.init(world.params, hyper), visits, hyper)
    floats = [x.dtype for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert set(floats) == {jnp.dtype(np.float32)}


def estimated(task_loss: Any, params: Any, batches: Any, **options: Any) -> Any:
    estimate = lambda w, s: estimate_smoothness(task_loss, w, s, jax.random.key(0), **options)
    return quick_jit(estimate)(params, batches)


def symmetric(seed: int, d: int = 4) -> np.ndarray:
    a = np.random.default_rng(seed).normal(size=(d, d))
    return a + a.T


def test_smoothness_of_quadratics_is_the_largest_eigenvalue():
    """Over the tasks, and in absolute value: the last of these has its largest below zero."""
    tasks = np.stack([symmetric(0), symmetric(1), -3 * np.eye(4) - 0.2 * symmetric(2)])
    row = lambda w: jnp.concatenate([w["p"], w["q"]])
    quadratic = lambda w, a: 0.5 * row(w) @ a @ row(w)
    params = {"p": jnp.ones(3), "q": jnp.ones(1)}
    smooth, rho = estimated(quadratic, params, jnp.asarray(tasks), steps=300)
    want = np.abs(np.linalg.eigvalsh(tasks)).max()
    np.testing.assert_allclose(smooth, want, rtol=1e-6)
    assert rho < 1e-12


@pytest.mark.parametrize("radius", [0.01, 0.5])
def test_hessian_lipschitz_constant_of_cubics(radius):
    """L_i(w) = c_i w^3 / 6 has the Hessian c_i w: L = max |c_i w|, rho = max |c_i|."""
    c, w = jnp.array([1.0, -2.5, 2.0]), jnp.array([1.5])
    cubic = lambda w, c: c * w[0] ** 3 / 6
    smooth, rho = estimated(cubic, w, c, radius=radius)
    np.testing.assert_allclose([smooth, rho], [2.5 * 1.5, 2.5], rtol=1e-12)


def test_hessian_lipschitz_constant_is_a_lower_bound_in_many_dimensions():
    """L(w) = c (a.w)^3 / 6: the Hessian moves by c |a|^2 |a.d| over a distance |d|."""
    a, c = jnp.array([1.0, 2.0, -1.0]), 0.7
    cubic = lambda w, scale: scale * c * (a @ w) ** 3 / 6
    many = jnp.ones(64)  # as many directions, of which the best is kept
    _, rho = estimated(cubic, jnp.zeros(3), many)
    bound = c * float(jnp.linalg.norm(a)) ** 3
    assert 0.9 * bound < rho <= bound * (1 + 1e-12)


@pytest.mark.parametrize("smoothness", [0.3, 1.0, 20.0])
def test_largest_eta0_keeps_beta_at_a_half(smoothness):
    eta0 = largest_eta0(smoothness)
    check_eta0(eta0, smoothness)
    # No gradient at all makes eta_t, and so beta_t, as large as can be: eta_0 / 4 L.
    worst = 6 * smoothness**2 * eta0 ** (-1 / 3) * eta0 / (4 * smoothness)
    np.testing.assert_allclose(worst, 0.5, rtol=1e-12)
    just_one = (1 / (1.5 * smoothness)) ** 1.5
    check_eta0(just_one * (1 - 1e-9), smoothness)
    with pytest.raises(ConfigError):
        check_eta0(just_one * (1 + 1e-6), smoothness)


def test_a_large_eta0_is_refused_with_its_values():
    with pytest.raises(ConfigError, match=r"eta_0 = 0\.5 with L = 3 .*beta reach 2\.83") as error:
        check_eta0(0.5, 3.0)
    assert f"eta_0 <= {largest_eta0(3.0):.3g}" in str(error.value)
    assert "\n" not in str(error.value)
