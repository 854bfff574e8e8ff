"""Boosted trees beside plain loops, and what they find."""

import numpy as np

from moml.algorithms.tabular.trees import (
    LEAST,
    NO_CUT,
    RATE,
    RIDGE,
    Trees,
    boost,
    joined,
    stages,
    tree_answers,
)


def walk(trees, row):
    """Follow each tree node by node."""
    total = 0.0
    for feature, cut, value in zip(*trees, strict=True):
        node = 0
        while node < len(feature):
            node = 2 * node + 1 + int(row[feature[node]] > cut[node])
        total += value[node - len(feature)]
    return total


def data(rows=400, seed=0):
    """y = 2 if two inputs are positive, else 0, plus little noise; the third says nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    return x, 2.0 * ((x[:, 0] > 0) & (x[:, 1] > 0)) + 0.1 * rng.normal(size=rows)


def test_answers_are_those_of_walks():
    x, y = data()
    made = boost(x, y, np.ones(len(y)), np.random.default_rng(1), rounds=10)
    np.testing.assert_allclose(tree_answers(made, x[:20], 3), [walk(made, row) for row in x[:20]])


def test_the_first_split_is_the_best_of_all():
    """One tree of depth 1 on all rows and inputs, beside a search by hand."""
    x, y = data()
    x = np.round(x)  # few values: every split is a bin's edge
    best = (-1.0, None)
    for j in range(3):
        for cut in (np.unique(x[:, j])[:-1] + np.unique(x[:, j])[1:]) / 2:
            right = x[:, j] > cut
            if LEAST <= right.sum() <= len(y) - LEAST:
                gain = sum(y[s].sum() ** 2 / (s.sum() + RIDGE) for s in (right, ~right))
                best = max(best, (gain, (j, cut)))
    rng = np.random.default_rng(0)
    made = boost(x, y, np.ones(len(y)), rng, rounds=1, depth=1, share=1.0)
    j, cut = best[1]
    assert (made.feature[0, 0], made.cut[0, 0]) == (j, cut)
    right = x[:, j] > cut
    wanted = [RATE * y[s].sum() / (s.sum() + RIDGE) for s in (~right, right)]
    np.testing.assert_allclose(made.value[0], wanted)


def test_trees_find_an_interaction():
    x, y = data()
    new, target = data(seed=1)
    made = boost(x, y, np.ones(len(y)), np.random.default_rng(0))
    assert np.mean((tree_answers(made, new) - target) ** 2) < 0.1 * target.var()


def test_rows_without_weight_do_not_matter():
    x, y = data()
    weights = (np.arange(len(y)) < 300).astype(float)
    wrong = np.where(weights > 0, y, 50.0)
    made = [boost(x, some, weights, np.random.default_rng(0), rounds=5) for some in (y, wrong)]
    assert np.array_equal(made[0].cut, made[1].cut)
    np.testing.assert_array_equal(made[0].value, made[1].value)


def test_stages_add_up_and_ensembles_average():
    x, y = data()
    made = boost(x, y, np.ones(len(y)), np.random.default_rng(0), rounds=6)
    steps = [*stages(made, x, 2)]
    assert len(steps) == 3
    np.testing.assert_allclose(steps[-1], tree_answers(made, x))
    first = Trees(*(part[:2] for part in made))
    np.testing.assert_allclose(steps[0], tree_answers(first, x))
    both = joined([made, first], 0.5)
    np.testing.assert_allclose(tree_answers(both, x), (steps[-1] + steps[0]) / 2)


def test_few_rows_and_constant_inputs_give_one_value():
    made = boost(np.zeros((3, 1)), np.ones(3), np.ones(3), np.random.default_rng(0), rounds=2)
    assert (made.cut == NO_CUT).all() and np.isfinite(made.value).all()
    assert len(set(tree_answers(made, np.array([[-5.0], [5.0]])))) == 1
