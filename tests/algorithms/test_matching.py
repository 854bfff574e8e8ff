import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import moml
from moml import match_beta
from moml.algorithms.single.matching import match_restart
from moml.errors import ConfigError


@given(st.integers(1, 50), st.integers(1, 500), st.integers(1, 50), st.floats(1e-3, 1e6))
def test_beta_is_a_beta(k, shots, steps, visits):
    beta = match_beta(k, shots, steps=steps, visits=visits)
    assert 0 < beta <= 1
    assert (shots > k) or beta == 1


def test_the_noise_of_the_average_is_that_of_the_shots():
    """The rule's own derivation: weights beta (1-beta)^j have squared sum beta / (2 - beta)."""
    for k, shots in [(1, 5), (2, 20), (5, 50)]:
        beta = match_beta(k, shots, floor=0.0)
        weights = beta * (1 - beta) ** np.arange(10_000)
        assert k / np.sum(weights**2) == pytest.approx(shots, rel=1e-9)


def test_more_steps_lower_beta_and_rare_visits_raise_it():
    assert match_beta(3, 10, steps=10) < match_beta(3, 10, steps=2) < match_beta(3, 10)
    assert match_beta(1, 2, steps=10) > 0.4  # few samples: hardly less than with one step
    assert match_beta(1, 50) == match_beta(1, 50, visits=300) == pytest.approx(0.1)
    assert match_beta(1, 50, visits=75) == pytest.approx(0.2)
    assert match_beta(1, 50, visits=75, floor=0.01) == pytest.approx(2 / 51)


@pytest.mark.parametrize("name, bad", [("k", 0), ("shots", 0), ("steps", 0), ("visits", 0),
                                       ("visits", float("nan"))])  # fmt: skip
def test_what_cannot_be_is_named(name, bad):
    with pytest.raises(moml.errors.ConfigError, match=name):
        match_beta(**({"k": 1, "shots": 10} | {name: bad}))


def test_both_ways_the_noise_is_that_of_the_shots_too():
    """Weights beta on K samples now, and on 2K at each visit of the memory before."""
    for k, shots in [(1, 5), (2, 20), (5, 50)]:
        beta = match_beta(k, shots, both_ways=True, floor=0.0)
        before = (1 - beta) * beta * (1 - beta) ** np.arange(10_000)
        noise = beta**2 / k + np.sum(before**2) / (2 * k)
        assert 1 / noise == pytest.approx(shots, rel=1e-9)
    assert match_beta(3, 3, both_ways=True) == 1


def test_fit_and_sweep_tell_how_long_training_will_be():
    net = moml.mlp(1, 4, 1)
    loss, few = moml.mse(net.predict), {"k": 1, "shots": 50, "iterations": 36}
    w = net.init(jax.random.key(0))
    hyper = moml.fit("moml", loss, w, moml.sine(), **few).hyper
    assert float(hyper.beta) == pytest.approx((3 * 25 / (36 * 3)) ** 0.5)
    many = moml.sweep("moml", loss, net.init, moml.sine(), seeds=2, **few).hyper
    assert float(many.beta[0]) == pytest.approx(float(hyper.beta))


def restart_noise(beta, k, h, first):
    """Mean over a round of the sum of squared weights, each sample by itself."""
    weights, means = [1 / first] * first, []
    for _ in range(h):
        weights = [(1 - beta) * w for w in weights] + [beta / k] * k
        means.append(sum(w**2 for w in weights))
    return np.mean(means)


@pytest.mark.parametrize(("k", "shots", "h", "first"), [(1, 3, 10, 2), (2, 5, 4, 4), (3, 7, 5, 6)])
def test_a_restarted_memory_is_as_noisy_as_the_shots(k, shots, h, first):
    beta = match_restart(k, shots, local_steps=h, restart_samples=first)
    assert 0 < beta < 1
    assert restart_noise(beta, k, h, first) <= 1 / shots + 1e-9
    assert restart_noise(beta + 0.002, k, h, first) > 1 / shots


def test_a_round_may_have_any_number_of_steps():
    """A carried memory of beta has as little noise as one sample's beta / (2 - beta)."""
    assert match_restart(1, 5, local_steps=2**31 - 1, restart_samples=2) == 0.333


def test_a_round_too_short_for_the_shots_has_the_least_noise():
    beta = match_restart(1, 1000, local_steps=5, restart_samples=1)
    least = min(restart_noise(b, 1, 5, 1) for b in np.linspace(0.001, 1, 1000))
    assert restart_noise(beta, 1, 5, 1) == pytest.approx(least, rel=1e-9)
    assert match_restart(5, 5, local_steps=5, restart_samples=5) == 1
    with pytest.raises(ConfigError, match="local_steps"):
        match_restart(1, 5, local_steps=0, restart_samples=1)
