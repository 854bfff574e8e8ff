"""The table recipe on a made table: a mixed model with a bend that only some columns have."""

import jax
import numpy as np
import pytest

from moml.algorithms.tabular.rivals import (
    best_penalty,
    columns,
    probabilities,
    ridge_per_task,
    shrinkage,
    shrunken_mean,
)
from moml.errors import ConfigError, DataError
from moml.tabular.fitting.fit import fit_groups

SHOTS, NOISE = 4, 0.3


def made_table(tasks=240, seed=0):
    """y = sin(2 x_0) + b_i + s_i x_1 + noise, standardised enough; rows of tasks, unequal sizes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(6, 12, tasks)
    groups = np.split(rng.permutation(sizes.sum()), np.cumsum(sizes)[:-1])
    x = rng.normal(size=(sizes.sum(), 2))
    y = np.sin(2 * x[:, 0]) + NOISE * rng.normal(size=len(x))
    for rows in groups:
        y[rows] += rng.normal() + 0.7 * rng.normal() * x[rows, 1]
    return x, y, groups


X, Y, GROUPS = made_table()
TRAIN, TEST = GROUPS[:180], GROUPS[180:]
KNOWN, ASKED = [g[:SHOTS] for g in TEST], np.concatenate([g[SHOTS:] for g in TEST])
WHICH = np.repeat(np.arange(len(TEST)), [len(g) - SHOTS for g in TEST])
QUICK = {"shots": SHOTS, "members": 1, "iterations": 600}


@pytest.fixture(scope="module")
def model():
    return fit_groups(X, Y, TRAIN, **QUICK)


def rmse(given, at=ASKED):
    return float(np.sqrt(np.mean((given - Y[at]) ** 2)))


def answers(model, known):
    return model.answers(model.personal(X, Y, known), WHICH, X[ASKED])


def test_it_beats_what_is_plain_and_comes_near_the_noise(model):
    mine = rmse(answers(model, KNOWN))
    y = columns(Y)
    prior = y[np.concatenate(TRAIN)].mean(axis=0)
    means = shrunken_mean(y, KNOWN, prior, shrinkage(y, TRAIN))[WHICH]
    ridge = lambda p: rmse(ridge_per_task(X, y, KNOWN, WHICH, X[ASKED], prior, p)[:, 0])
    nobody = rmse(answers(model, [g[:0] for g in TEST]))
    assert mine < 0.75 * min(rmse(means[:, 0]), ridge(best_penalty(ridge)), nobody)
    assert mine < 2.5 * NOISE


def test_more_rows_help(model):
    one, two, four = (rmse(answers(model, [g[:k] for g in TEST])) for k in (1, 2, 4))
    assert four < two < one


def test_of_one_task_as_of_many(model):
    all_ = answers(model, KNOWN)[WHICH == 3]
    rows = TEST[3]
    mine = model.personal(X[rows[:SHOTS]], Y[rows[:SHOTS]], [np.arange(SHOTS)])
    alone = model.answers(mine, np.zeros(len(rows) - SHOTS, int), X[rows[SHOTS:]])
    np.testing.assert_allclose(alone, all_, rtol=1e-9)


def test_the_same_seed_gives_the_same_model(model):
    short = QUICK | {"iterations": 20, "kinds": ["summary"]}
    one, again = (fit_groups(X, Y, TRAIN, **short) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, one.metas, again.metas)
    assert one.held_out == again.held_out == model.held_out
    assert len(model.held_out) == round(180 / 7)


def test_outliers_leave_predictions_finite(model):
    x, y = X.copy(), Y.copy()
    x[TEST[0][0]], y[TEST[1][0]] = 1e6, -1e6
    own = model.personal(x, y, KNOWN)
    assert np.isfinite(model.answers(own, WHICH, x[ASKED])).all()
    assert np.isfinite(model.answers(own, [0], np.full((1, 2), -1e6))).all()


@pytest.mark.slow
def test_classes():
    chance = 1 / (1 + np.exp(-3 * Y))
    label = (np.random.default_rng(1).uniform(size=len(Y)) < chance).astype(int)
    model = fit_groups(X, label, TRAIN, classes=2, kinds=["steps"], **QUICK)
    given = model.answers(model.personal(X, label, KNOWN), WHICH, X[ASKED])
    np.testing.assert_allclose(given.sum(axis=1), 1, rtol=1e-9)
    log_loss = lambda p: -np.mean(np.log(p[np.arange(len(ASKED)), label[ASKED]]))
    plain = columns(label, 2)
    prior = plain[np.concatenate(TRAIN)].mean(axis=0)
    means = shrunken_mean(plain, KNOWN, prior, shrinkage(plain, TRAIN))[WHICH]
    assert log_loss(given) < 0.95 * log_loss(probabilities(means))


@pytest.mark.slow
def test_memory_joins_visits_where_users_bring_more_rows():
    rng = np.random.default_rng(0)
    groups = np.split(np.arange(800), 8)
    x = rng.normal(size=(800, 1))
    y = rng.normal(size=8)[np.arange(800) // 100] + 0.1 * rng.normal(size=800)
    model = fit_groups(x, y, groups, shots=48, kinds=["head"], members=1, iterations=40)
    betas = {row["beta"] for row in model.scores}
    assert len(betas) == 2 and max(betas) == 1.0 and min(betas) < 1


def test_what_cannot_be():
    with pytest.raises(DataError, match="1 tasks, 1 of them with 2 rows or more"):
        fit_groups(X, Y, TRAIN[:1], **QUICK)
    with pytest.raises(DataError, match="2 tasks, 0 of them with 2 rows or more"):
        fit_groups(X, Y, [[0], [1]], **QUICK)
    with pytest.raises(DataError, match=r"y \[rows\]; got"):
        fit_groups(X, Y[:-1], TRAIN, **QUICK)
    with pytest.raises(DataError, match="x of row 2 is not finite"):
        fit_groups(np.where(np.arange(len(X))[:, None] == 2, np.nan, X), Y, TRAIN, **QUICK)
    with pytest.raises(DataError, match="class numbers from 0 to 1"):
        fit_groups(X, np.full(len(X), 2), TRAIN, classes=2, **QUICK)
    with pytest.raises(ConfigError, match="unknown kind 'trees'"):
        fit_groups(X, Y, TRAIN, kinds=["trees"], **QUICK)
