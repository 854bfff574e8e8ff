"""Weights of candidates beside a slow reference, and their limits."""

import itertools

import numpy as np

from moml.algorithms.tabular.stack import (
    DRAWS,
    SHARP,
    STRENGTH,
    Stack,
    averaged,
    stacked,
    stacked_chances,
)


def errors(groups=20, rows=10, seed=0):
    """Three candidates: two with independent errors, the third much worse; and their groups."""
    rng = np.random.default_rng(seed)
    e = rng.normal(size=(3, groups * rows)) * np.array([1.0, 1.2, 4.0])[:, None]
    return e, np.repeat(np.arange(groups), rows)


def test_weights_are_those_of_a_loop_over_draws():
    e, which = errors(6, 5)
    weigh = np.random.default_rng(1).random(30)
    total = np.zeros(3)
    for g in np.random.default_rng(0).dirichlet(np.ones(6), DRAWS):
        loss = [np.average(one**2, weights=weigh * g[which]) for one in e]
        share = np.array([one ** -np.sqrt(6 * np.log(3)) for one in loss])
        total += share / share.sum()
    wanted = np.where(total / DRAWS < 1e-3, 0, total / DRAWS)
    np.testing.assert_allclose(stacked(e, weigh, which), wanted / wanted.sum(), rtol=1e-9)
    again = stacked(7 * e, 3 * weigh, 100 - which)  # units and names of groups do not matter
    np.testing.assert_allclose(again, stacked(e, weigh, 5 - which), rtol=1e-9)


def test_weights_are_shares_and_a_worse_candidate_gets_none():
    e, which = errors(200)
    found = stacked(e, np.ones(2000), which)
    assert (found >= 0).all() and abs(found.sum() - 1) < 1e-12
    assert found[0] > 0.99 and found[2] == 0
    both = np.stack([e[0], 2 * e[0]])  # nothing but worse
    assert stacked(both, np.ones(2000), which).tolist() == [1.0, 0.0]


def test_groups_count_and_not_their_rows():
    """The same errors of few groups leave it open which candidate is best."""
    e, _ = errors(200)
    few = stacked(e[:2], np.ones(2000), np.arange(2000) % 3)
    many = stacked(e[:2], np.ones(2000), np.arange(2000) % 100)
    assert 0.5 < few[0] < 0.7 < 0.9 < many[0]


def test_perfect_candidates_give_finite_weights():
    assert stacked(np.zeros((2, 4)), np.ones(4), np.arange(4)).tolist() == [0.5, 0.5]


def test_a_stack_takes_the_level_below():
    stack = Stack(np.array([0, 1, 4]), np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]))
    wanted = [[1, 0], [0.5, 0.5], [0.5, 0.5], [0, 1], [0, 1]]
    assert stack.of(np.array([0, 1, 3, 4, 100])).tolist() == wanted


def test_the_spread_is_that_of_a_weighted_sample():
    weights = np.array([[0.25, 0.75], [1.0, 0.0]])
    mean, spread = averaged(weights, np.array([[1.0, 5.0], [3.0, 9.0]]))
    assert mean.tolist() == [2.5, 5.0]
    np.testing.assert_allclose(spread, [np.sqrt(0.25 * 1.5**2 + 0.75 * 0.5**2), 0.0])


def test_the_spread_of_probabilities_is_over_all_classes():
    given = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    mean, spread = averaged(np.array([[0.5, 0.5]]), given)
    assert mean.tolist() == [[0.5, 0.5]]
    np.testing.assert_allclose(spread, [np.sqrt(0.5)])


def chances(rows=200, seed=0):
    """Of the observed class by three candidates, the third of which says nothing."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(1, 1, (2, rows))
    return np.concatenate([1 / (1 + np.exp(-odds)), np.full((1, rows), 0.5)])


def test_weights_of_chances_are_the_least_of_the_objective():
    a, weigh = chances(), np.random.default_rng(1).random(200)
    found = stacked_chances(a, weigh, np.arange(200) // 10)
    loss = -np.log(a) @ weigh / weigh.sum()
    prior = np.exp(-20 * SHARP * loss) / np.exp(-20 * SHARP * loss).sum()
    pull = STRENGTH / 20
    value = lambda w: -np.log(w @ a) @ weigh / weigh.sum() - pull * prior @ np.log(w)
    steps = np.linspace(0.01, 0.98, 98)
    grid = [
        np.array([p, q, 1 - p - q]) for p, q in itertools.product(steps, steps) if p + q < 0.999
    ]
    best = min(grid, key=value)
    np.testing.assert_allclose(found, best, atol=0.011)
    assert value(found) < value(best) + 1e-6


def test_with_many_groups_a_worse_candidate_gets_no_weight_and_zero_is_no_error():
    a = chances(5000)
    worse = np.stack([a[0], 0.5 * a[0]])
    assert stacked_chances(worse, np.ones(5000), np.arange(5000)).tolist() == [1.0, 0.0]
    found = stacked_chances(np.array([[0.0, 0.5], [0.5, 0.5]]), np.ones(2), np.arange(2))
    assert np.isfinite(found).all() and found[1] > found[0]
