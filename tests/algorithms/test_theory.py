"""v2's theoretical step sizes, and the constants they rest on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.single.theory import (
    Constants,
    estimate_smoothness,
    theorem_conditions,
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

L, RHO = 0.3, 0.5
CONSTANTS = Constants(L, RHO, 0.2, 0.3, 0.1)
SHAPE = {"alpha": HYPER.alpha, "k": K, "n": N, "tasks_per_step": B}
ETA0 = theorem_conditions(CONSTANTS, **SHAPE).largest_eta0


def wrapped(**options: Any) -> tuple[Any, Any]:
    m = method("moml-v2", loss, n=N, tasks_per_step=B, k=K, **options)
    about = {"constants": CONSTANTS, "n": N, "eta0": ETA0, "alpha": HYPER.alpha}
    return m, theoretical_steps(m.algorithm, loss, SampleSpec(4, support=4), **about)


@pytest.mark.parametrize("two", [False, True], ids=["one batch", "two batches"])
def test_step_sizes_follow_the_theorem(two):
    world, hyper = sigmoid_world(), HYPER._replace(eta=9.0, beta=9.0, alpha=9.0)  # not used
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
    world, hyper = sigmoid_world(np.float32), HYPER
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
def test_the_largest_eta0_keeps_beta_below_a_half(smoothness):
    """No gradient at all makes eta_t, and so beta_t, as large as can be: eta_0 / 4 L."""
    about = {"alpha": 0.1 / smoothness, "k": 1, "n": 20, "tasks_per_step": 3}
    eta0 = theorem_conditions(Constants(smoothness, 1.0), **about).largest_eta0
    assert 0 < 6 * smoothness**2 * eta0 ** (-1 / 3) * eta0 / (4 * smoothness) <= 0.5


def test_the_bounds_on_eta0_by_hand():
    """alpha = 0: C_1 = 1, C_3 = 2 L^2, C_4 = 4, C_6 = 4 / 3 L^2, C_7 = 0."""
    smooth = 1.5
    found = theorem_conditions(Constants(smooth, 2.0), alpha=0.0, k=1, n=9, tasks_per_step=3).eta0
    last = 1 / (8 * (16 / 6.75) ** 1.5), 1 / 80
    want = [(1 / 4.5) ** 1.5, (9 / 8 * smooth**2) ** 1.5, 1 / 5, *last]
    np.testing.assert_allclose(list(found.values()), want, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"eta0": 5.0}, r"eta_0 must be in \(0, .*\(1 / 3L\)\^\(3/2\) = .*1 / 20 C_4 = .*; got 5$"),
        ({"eta0": 1.01 * ETA0}, r"eta_0 must be in \(0, "),
        ({"eta0": -1.0}, r"eta_0 must be in \(0, .*got -1"),
        ({"alpha": 1.4}, r"alpha must be in \[0, 1.38\), .*; got 1.4"),
        ({"need": SampleSpec(4, support=3)}, r"S_L must be at least 4, .*; got 3"),
        (
            {"need": SampleSpec(1, support=4), "constants": CONSTANTS._replace(dissimilarity=0.2)},
            r"\(n - 1\) B_L / \(n - B_L\) must be at least 4, .*got 1 with B_L = 1 of n = 7",
        ),
        ({"eta0": 5.0, "need": SampleSpec(4, support=1)}, r"got 5; S_L must be .*; got 1$"),
    ],
)
def test_what_lies_outside_the_theorem_is_refused(given, said):
    m = method("moml-v2", loss, n=N, tasks_per_step=B, k=K)
    about = {"constants": CONSTANTS, "n": N, "eta0": ETA0, "alpha": HYPER.alpha}
    about |= {"need": SampleSpec(4, support=4)} | given
    with pytest.raises(ConfigError, match=said):
        theoretical_steps(m.algorithm, loss, about.pop("need"), **about)
