"""Weights of candidates beside a search over a grid, and their limits."""

import itertools

import numpy as np

from moml.algorithms.tabular.stack import STRENGTH, Stack, prior_weights, stacked


def errors(rows=200, seed=0):
    """Three candidates: two with independent errors, the third much worse."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(3, rows)) * np.array([1.0, 1.2, 4.0])[:, None]


def test_weights_are_the_least_of_the_objective():
    e, weigh = errors(), np.random.default_rng(1).random(200)
    found = stacked(e, weigh, 20)
    moments = (e * weigh / weigh.sum()) @ e.T
    prior = prior_weights(np.diag(moments), 20)
    pull = STRENGTH / 20 * np.diag(moments).min()
    value = lambda w: w @ moments @ w + pull * np.sum((w - prior) ** 2)
    steps = np.linspace(0, 1, 101)
    grid = [np.array([a, b, 1 - a - b]) for a, b in itertools.product(steps, steps) if a + b <= 1]
    best = min(grid, key=value)
    np.testing.assert_allclose(found, best, atol=0.011)
    assert value(found) < value(best) + 1e-6


def test_weights_are_shares_and_a_worse_candidate_gets_none():
    found = stacked(errors(5000), np.ones(5000), 1000)
    assert (found >= 0).all() and abs(found.sum() - 1) < 1e-12
    assert found[2] < 0.1
    copy = np.concatenate([errors(5000)[:1], 2 * errors(5000)[:1]])  # nothing but worse
    assert stacked(copy, np.ones(5000), 1000).tolist() == [1.0, 0.0]


def test_with_few_groups_the_prior_decides():
    e = errors()
    prior = prior_weights((e**2).mean(axis=1), 1)
    np.testing.assert_allclose(stacked(e, np.ones(200), 1), prior, atol=0.15)
    assert prior_weights(np.array([1.0, 2.0]), 1)[1] > 0.4
    assert prior_weights(np.array([1.0, 2.0]), 100)[1] < 1e-6


def test_perfect_candidates_give_finite_weights():
    assert stacked(np.zeros((2, 4)), np.ones(4), 5).tolist() == [0.5, 0.5]


def test_a_stack_takes_the_level_below():
    stack = Stack(np.array([0, 1, 4]), np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]))
    wanted = [[1, 0], [0.5, 0.5], [0.5, 0.5], [0, 1], [0, 1]]
    assert stack.of(np.array([0, 1, 3, 4, 100])).tolist() == wanted
