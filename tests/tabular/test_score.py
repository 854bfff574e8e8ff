"""Intervals of differences between models, over tasks."""

import numpy as np

from moml.tabular.score import paired


def test_an_interval_is_over_tasks_not_over_rows():
    """Ten tasks of 100 equal rows say as much as ten rows."""
    rng = np.random.default_rng(0)
    one, other = rng.random(10) + 1, rng.random(10)
    ten = paired("log_loss", one, other, np.ones(10), np.arange(10))
    many = [np.repeat(part, 100) for part in (one, other, np.ones(10), np.arange(10))]
    np.testing.assert_allclose(paired("log_loss", *many), ten)
    spread = (one - other).std() / np.sqrt(10)
    np.testing.assert_allclose(np.diff(ten), 2 * 1.96 * spread, rtol=0.15)


def test_a_difference_that_all_tasks_have_is_certain_and_chance_is_not():
    rng = np.random.default_rng(1)
    errors, which = rng.random(200), np.repeat(np.arange(20), 10)
    low, high = paired("rmse", errors + 1, errors, np.ones(200), which)
    assert 0 < low < high
    low, high = paired("rmse", rng.permutation(errors), errors, np.ones(200), which)
    assert low < 0 < high


def test_rows_without_weight_do_not_count():
    errors, weigh = np.array([1.0, 1.0, 900.0]), np.array([1.0, 1.0, 0.0])
    assert paired("rmse", errors, np.ones(3), weigh, np.array([0, 1, 2])) == [0.0, 0.0]
