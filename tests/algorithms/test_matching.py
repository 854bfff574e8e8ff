import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moml import match_beta


@given(st.integers(1, 50), st.integers(1, 500), st.integers(1, 50), st.floats(1, 1e6))
def test_beta_is_a_beta(k, shots, steps, apart):
    beta = match_beta(k, shots, steps=steps, visits_apart=apart)
    assert 0 < beta <= 1
    assert (shots > k) or beta == 1


def test_the_noise_of_the_average_is_that_of_the_shots():
    """The rule's own derivation: weights beta (1-beta)^j have squared sum beta / (2 - beta)."""
    for k, shots in [(1, 5), (2, 20), (5, 50)]:
        beta = match_beta(k, shots, floor=0.0)
        weights = beta * (1 - beta) ** np.arange(10_000)
        assert k / np.sum(weights**2) == pytest.approx(shots, rel=1e-9)


def test_more_steps_lower_beta_and_waiting_raises_it():
    assert match_beta(1, 10, steps=10) < match_beta(1, 10, steps=2) < match_beta(1, 10)
    assert match_beta(1, 50, visits_apart=133.0) == pytest.approx(0.1)
    assert match_beta(1, 50, visits_apart=8.3) == pytest.approx(2 / 51)
    assert match_beta(1, 50, visits_apart=133.0, floor=0.01) == pytest.approx(2 / 51)
