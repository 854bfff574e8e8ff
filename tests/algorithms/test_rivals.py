import numpy as np

from moml.algorithms.tabular.rivals import (
    columns,
    probabilities,
    ridge_per_task,
    shrinkage,
    shrunken_mean,
)


def test_shrinkage_finds_the_ratio_of_the_variances():
    rng = np.random.default_rng(0)
    groups = np.split(np.arange(30_000), 3000)
    y = 0.5 * rng.normal(size=3000)[np.arange(30_000) // 10] + rng.normal(size=30_000)
    assert abs(shrinkage(columns(y), groups) - 1 / 0.25) < 0.4
    assert shrinkage(columns(np.tile([0.0, 1.0], 50)), np.split(np.arange(100), 10)) == np.inf


def test_a_task_that_does_not_differ_keeps_the_prior():
    given = shrunken_mean(np.ones((2, 1)), [[0], []], np.array([3.0]), np.inf)
    assert given.tolist() == [[3.0], [3.0]]


def test_ridge_is_the_normal_equations():
    rng = np.random.default_rng(0)
    x, y, asked = rng.normal(size=(9, 2)), rng.normal(size=(9, 1)), rng.normal(size=(4, 2))
    given = ridge_per_task(x, y, [np.arange(9), []], np.array([0, 1, 0, 0]), asked, np.ones(1), 0.7)
    f = x - x.mean(axis=0)
    slope = np.linalg.solve(f.T @ f + 0.7 * np.eye(2), f.T @ (y - y.mean()))
    wanted = y.mean() + (asked - x.mean(axis=0)) @ slope
    wanted[1] = 1
    np.testing.assert_allclose(given, wanted, rtol=1e-12)


def test_scores_become_probabilities():
    given = probabilities(np.array([[1.2, -0.2], [0.25, 0.75]]))
    np.testing.assert_allclose(given, [[1 / 1.001, 0.001 / 1.001], [0.25, 0.75]])
