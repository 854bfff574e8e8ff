"""The logistic model with a random intercept beside numerical integration, and its limits."""

import numpy as np
import pytest

from moml.algorithms.tabular.logistic import (
    FLAT,
    WIDE,
    LogisticModel,
    _density,
    fit_logistic,
    logistic_answer,
    no_levels,
    update_levels,
)
from moml.algorithms.tabular.mixed import Structure
from moml.algorithms.tabular.simple_fit import fit_logistics
from moml.algorithms.tabular.structures import design_of
from moml.models.table import knots
from moml.serving import moml_serve
from tests.reference import logistic as reference

PLAIN = Structure((0, 1, 2), (-1, -1, -1), (0,))
SHRUNK = Structure((0, 1, 2), (-1, 0, 1), (0,))


def table(tasks=20, seed=0, spread=1.5, rows=8):
    """Log-odds -0.5 + x - 0.5 w + u_i; w is constant within tasks."""
    rng = np.random.default_rng(seed)
    groups = np.split(np.arange(rows * tasks), tasks)
    x, w = rng.normal(size=rows * tasks), np.repeat(rng.normal(size=tasks), rows)
    odds = -0.5 + x - 0.5 * w + np.repeat(spread * rng.normal(size=tasks), rows)
    y = (rng.random(len(odds)) < reference.chance(odds)).astype(int)
    return np.column_stack([np.ones(len(x)), x, w]), y, groups


def given(model, design, y, asked):
    """Probabilities of rows of one task after its rows."""
    levels = update_levels(model, no_levels(model), design[None], y[None], np.ones((1, len(y))))
    return logistic_answer(model, np.repeat(levels.logs, len(asked), axis=0), asked)


def test_the_fit_has_the_largest_density_and_predicts_as_integrals_do():
    design, y, groups = table()
    (model, priors) = fit_logistic(design, y, groups, SHRUNK, 2)
    beta, spread, prior = model.beta[0], float(model.spread[0]), np.append(FLAT, priors[0])
    density = lambda b, v: reference.density(design, y, groups, b, v, prior, WIDE)
    most = density(beta, spread)
    for move in 0.02 * np.concatenate([np.eye(4), -np.eye(4)]):
        assert density(beta + move[:3], spread + move[3]) < most
    new, target, _ = table(1, seed=5)
    mine = given(model, new[:5], target[:5], new[5:])
    wanted = [reference.predict(new[:5] @ beta, target[:5], spread, row @ beta) for row in new[5:]]
    np.testing.assert_allclose(mine[:, 1], wanted, rtol=1e-6)
    np.testing.assert_allclose(mine.sum(axis=1), 1)


# Chances by GPBoost 1.8, GPModel(group_data=who, likelihood="bernoulli_logit").fit(y, X=design) on
# table(200, seed=1): predict_response of the rows of table(1, seed=5) in a new group and in group 3
RECORDED = [
    [0.2506666, 0.1876672, 0.3290739, 0.4356427, 0.5553618, 0.3849215, 0.2846171, 0.2529257],
    [0.2769354, 0.1987011, 0.3763658, 0.5099475, 0.6509791, 0.4469466, 0.3198820, 0.2797818],
]


def test_it_predicts_as_gpboost():
    """To what the Laplace approximation, which GPBoost uses, differs from quadrature."""
    design, y, groups = table(200, seed=1)
    model = fit_logistic(design, y, groups, PLAIN, 2).model
    new, own = table(1, seed=5)[0], groups[3]
    mine = [given(model, design[rows], y[rows], new)[:, 1] for rows in (own[:0], own)]
    np.testing.assert_allclose(mine, RECORDED, atol=0.004)


def test_without_known_rows_the_chance_is_marginal():
    model = LogisticModel(np.array([0]), np.array([[0.7]]), np.array([2.0]))
    mine = logistic_answer(model, no_levels(model).logs, np.ones((1, 1)))
    np.testing.assert_allclose(mine[0, 1], reference.predict([], [], 2.0, 0.7), rtol=1e-5)
    assert mine[0, 1] < reference.chance(0.7)  # nearer to one half than without the spread


def test_without_spread_it_is_a_ridge_logistic_regression():
    design, y, groups = table()
    model, priors = fit_logistic(design, y, groups, SHRUNK, 2, spread=0.0)
    wanted = reference.ridge(design, y, np.append(FLAT, priors[0]))
    np.testing.assert_allclose(model.beta[0], wanted, rtol=1e-4)
    mine = given(model, design[:5], y[:5], design[5:9])
    np.testing.assert_allclose(mine[:, 1], reference.chance(design[5:9] @ model.beta[0]))


def test_the_second_derivative_and_the_fixed_point_of_the_prior_variances():
    design, y, groups = table(30)
    structure = Structure((0, 1, 2), (-1, 0, 0), (0,))
    model, priors = fit_logistic(design, y, groups, structure, 2)
    prior = np.array([FLAT, priors[0, 0], priors[0, 0]])
    starts = np.array([rows[0] for rows in groups])
    of = lambda w: _density(design, y == 1, starts, np.ones(len(y)), prior, w)
    w, small = np.append(model.beta[0], model.spread[0]), 1e-5 * np.eye(4)
    _, slope, curve = of(w)
    assert np.abs(slope).max() < 1e-2  # the mode
    moved = [(of(w - move)[1] - of(w + move)[1]) / 2e-5 for move in small]
    np.testing.assert_allclose(curve, moved, rtol=1e-5, atol=1e-5)
    b, t = w[1:3], priors[0, 0]
    determined = 2 - np.trace(np.linalg.inv(curve)[1:3, 1:3]) / t
    np.testing.assert_allclose(t, b @ b / determined, rtol=0.02)
    assert determined < 1.95


def test_rows_in_two_parts_are_as_rows_at_once_and_padding_is_nothing():
    design, y, groups = table()
    model = fit_logistic(design, y, groups, PLAIN, 2).model
    start = no_levels(model)
    once = update_levels(model, start, design[None, :8], y[None, :8], np.ones((1, 8)))
    half = update_levels(model, start, design[None, :3], y[None, :3], np.ones((1, 3)))
    mask = (np.arange(3, 20) < 8).astype(float)[None]
    both = update_levels(model, half, design[None, 3:20], y[None, 3:20], mask)
    np.testing.assert_allclose(both.logs, once.logs, rtol=1e-9)
    np.testing.assert_allclose(np.exp(once.logs).sum(axis=-1), 1)


def test_a_row_of_weight_two_is_two_rows_and_of_zero_none():
    design, y, groups = table()
    twice = [np.repeat(rows, 2) for rows in groups]
    one = fit_logistic(design, y, twice, SHRUNK, 2).model
    other = fit_logistic(design, y, groups, SHRUNK, 2, np.full(len(y), 2.0)).model
    np.testing.assert_allclose(one.beta, other.beta, rtol=1e-3)
    np.testing.assert_allclose(one.spread, other.spread, rtol=1e-3)
    some = np.isin(np.arange(len(y)) % 8, [0, 1, 2, 3, 4]).astype(float)
    fewer = [rows[:5] for rows in groups]
    one = fit_logistic(design, y, groups, SHRUNK, 2, some).model
    np.testing.assert_allclose(
        one.beta, fit_logistic(design, y, fewer, SHRUNK, 2).model.beta, rtol=1e-3
    )


def test_a_fold_is_fitted_without_its_tasks():
    design, y, groups = table(18)
    x, fold = design[:, 1:], np.arange(18) % 3
    found = fit_logistics(
        x, y, 2, groups, fold, knots(x), weights=None, rng=np.random.default_rng(0)
    )
    assert [*found.whole] == ["level", "logistic"]
    structure = Structure((0, 1, 2), (-1, 0, 1), (0,))
    for f, model in enumerate(found.by_fold["logistic"]):
        rest = [rows for rows, mine in zip(groups, fold, strict=True) if mine != f]
        wanted = fit_logistic(design_of(knots(x), x), y, rest, structure, 2).model
        np.testing.assert_allclose(model.beta, wanted.beta, atol=0.02)
        assert np.abs(model.beta - found.whole["logistic"].beta).max() > 0.02


def test_inputs_that_say_nothing_are_shrunk():
    design, y, groups = table(12)
    noise = np.repeat(np.random.default_rng(3).normal(size=(12, 6)), 8, axis=0)
    wide = np.column_stack([design, noise])
    flat = fit_logistic(wide, y, groups, Structure(tuple(range(9)), (-1,) * 9, (0,)), 2).model
    prior = (-1, 0, *[1] * 7)
    shrunk = fit_logistic(wide, y, groups, Structure(tuple(range(9)), prior, (0,)), 2).model
    assert np.linalg.norm(shrunk.beta[0, 2:]) < 0.5 * np.linalg.norm(flat.beta[0, 2:])
    assert shrunk.beta[0, 1] > 0.5


@pytest.mark.parametrize("classes", [2, 3])
def test_one_class_alone_and_one_task_give_finite_answers(classes):
    design, y, groups = table(3)
    for some in (groups, groups[:1]):
        model = fit_logistic(design, 0 * y, some, SHRUNK, classes).model
        p = given(model, design[:4], 0 * y[:4], design)
        assert np.isfinite(p).all() and (p.argmax(axis=1) == 0).all()
        assert p.shape == (len(y), classes)


def test_three_classes_differ_by_task_and_the_export_answers_alike():
    rng = np.random.default_rng(0)
    design, _, groups = table(30, rows=12)
    own = rng.permutation(np.arange(30) % 3)
    y = np.where(rng.random(360) < 0.7, np.repeat(own, 12), rng.integers(0, 3, 360))
    model = fit_logistic(design, y, groups, SHRUNK, 3).model
    p = given(model, design[:6], y[:6], design[6:12])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == own[0]).all()
    theirs = moml_serve.Logistic(*model)
    logs = moml_serve._informed(theirs, no_levels(model).logs[0], design[:6], y[:6])
    mine = update_levels(model, no_levels(model), design[None, :6], y[None, :6], np.ones((1, 6)))
    np.testing.assert_allclose(logs, mine.logs[0])
