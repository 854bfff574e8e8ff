"""The mixed model beside dense matrices, and beside what statsmodels finds."""

import numpy as np
import pytest

from moml.algorithms.tabular import simple_fit
from moml.algorithms.tabular.mixed import (
    Effects,
    Structure,
    cross_products,
    fit_mixed,
    mixed_answer,
    no_rows,
    update_effects,
)
from moml.algorithms.tabular.rivals import Rivals
from moml.algorithms.tabular.simple_fit import fit_simple, ridge_alone
from moml.algorithms.tabular.structures import design_of, structures
from moml.models.table import knots
from tests.reference import mixed as reference


def table(tasks=12, seed=0, bend=0.0):
    """y = 1 + x - 0.5 w + bend x^2 + u_i + 0.6 v_i x + noise; w is constant within tasks."""
    rng = np.random.default_rng(seed)
    groups = np.split(np.arange(8 * tasks), tasks)
    x, w = rng.normal(size=8 * tasks), np.repeat(rng.normal(size=tasks), 8)
    y = 1 + x - 0.5 * w + bend * x**2 + 0.3 * rng.normal(size=8 * tasks)
    for rows in groups:
        y[rows] += rng.normal() + 0.6 * rng.normal() * x[rows]
    return np.column_stack([np.ones(len(x)), x, w]), y, groups


def each(effects, rows):
    """The effects of one task for each of its rows."""
    return Effects(*(np.repeat(part, rows, axis=0) for part in effects))


FLAT = Structure((0, 1, 2), (-1, -1, -1), (0, 1))
# predictions of statsmodels 0.15, MixedLM(y, design, group, design[:, :2]).fit(gtol=1e-8)
RECORDED = [-0.3533418252708109, -0.8001897209561101, -0.9567951041722692]
SHRUNK = Structure((0, 1, 2), (-1, 0, 1), (0,), (1,))


@pytest.mark.parametrize("structure", [FLAT, SHRUNK], ids=["flat", "shrunk"])
def test_the_fit_is_the_least_deviance_and_predicts_as_dense_matrices_do(structure):
    design, y, groups = table()
    model, theta = fit_mixed(cross_products(design, y, groups), structure)
    s, z = float(model.noise), design[:, [0, 1]]
    prior = np.full(3, np.inf)
    if structure is SHRUNK:
        prior[1:] = s * np.exp(2 * theta[-2:])
    given = lambda d, s, t: reference.deviance(design, z, y, groups, d, s, t)
    least = given(model.covariance, s, prior)
    for factor in (0.97, 1.03):
        assert given(factor * model.covariance, s, prior) > least
        assert given(model.covariance, factor * s, prior) > least
        if structure is SHRUNK:
            assert given(model.covariance, s, prior * [1, factor, 1]) > least
            assert given(model.covariance, s, prior * [1, 1, factor]) > least
    new, target, _ = table(1, seed=5)
    effects = update_effects(
        model, no_rows(model), new[None, :5], target[None, :5], np.ones((1, 5))
    )
    mine = mixed_answer(model, each(effects, 3), new[5:])
    known, query = (new[:5], new[:5, :2], target[:5]), (new[5:], new[5:, :2])
    wanted = reference.predict(design, z, y, groups, model.covariance, s, prior, known, query)
    np.testing.assert_allclose(mine, wanted, rtol=1e-6)


def test_it_predicts_as_statsmodels():
    """Recorded: MixedLM(y, design, group, design[:, :2]).fit() of statsmodels 0.15."""
    design, y, groups = table(30)
    model, _ = fit_mixed(cross_products(design, y, groups), FLAT)
    new, target, _ = table(1, seed=5)
    effects = update_effects(
        model, no_rows(model), new[None, :5], target[None, :5], np.ones((1, 5))
    )
    mine = mixed_answer(model, each(effects, 3), new[5:])
    np.testing.assert_allclose(mine, RECORDED, atol=1e-4)


def test_levels_that_are_not_shrunk_give_the_within_estimator():
    """Slopes are those of least squares on rows less the mean of their task."""
    rng = np.random.default_rng(3)
    groups = np.split(np.arange(60), 12)
    level = np.repeat(rng.normal(size=12), 5)
    x = rng.normal(size=(60, 2)) + level[:, None]  # inputs that go with the task's level
    y = 3 * level + x @ [0.7, -0.4] + 0.1 * rng.normal(size=60)
    design = np.column_stack([np.ones(60), x])
    within = Structure((0, 1, 2), (-1, -1, -1), (0,), within=True)
    model, _ = fit_mixed(cross_products(design, y, groups), within)
    less = lambda values: values - np.repeat(values.reshape(12, 5, -1).mean(axis=1), 5, axis=0)
    slopes = np.linalg.lstsq(less(x), less(y[:, None])[:, 0], rcond=None)[0]
    np.testing.assert_allclose(model.beta[1:], slopes, rtol=1e-4)
    effects = update_effects(model, no_rows(model), design[None, :2], y[None, :2], np.ones((1, 2)))
    given = mixed_answer(model, each(effects, 3), design[2:5])
    wanted = y[:2].mean() + (x[2:5] - x[:2].mean(axis=0)) @ slopes
    np.testing.assert_allclose(given, wanted, rtol=1e-4)


@pytest.mark.parametrize("seed", range(1, 5))
def test_growth_with_little_noise_is_no_local_optimum(seed):
    """From one start alone the spline vanished, and its bend was noise: 0.002 and more."""
    rng = np.random.default_rng(seed)
    age, groups = np.tile([3.0, 5, 10, 15, 20, 25], 10), np.split(np.arange(60), 10)
    y = (np.log(age) - np.log(age).mean()) / np.log(age).std() + 0.02 * rng.normal(size=60)
    y += np.repeat(0.05 * rng.normal(size=10), 6)
    x = ((age - 13) / 7.8)[:, None]
    design = design_of(knots(x), x)
    pieces = tuple(range(2, design.shape[1]))
    bent = Structure((0, 1, *pieces), (-1, 0, *[1] * len(pieces)), (0,))
    assert fit_mixed(cross_products(design, y, groups), bent).model.noise < 0.001


def test_rows_in_two_parts_are_as_rows_at_once_and_padding_is_nothing():
    design, y, groups = table()
    model, _ = fit_mixed(cross_products(design, y, groups), FLAT)
    start = no_rows(model)
    once = update_effects(model, start, design[None, :8], y[None, :8], np.ones((1, 8)))
    half = update_effects(model, start, design[None, :3], y[None, :3], np.ones((1, 3)))
    mask = (np.arange(3, 20) < 8).astype(float)[None]
    both = update_effects(model, half, design[None, 3:20], y[None, 3:20], mask)
    np.testing.assert_allclose(both.mean, once.mean, rtol=1e-9)
    np.testing.assert_allclose(both.covariance, once.covariance, rtol=1e-9)


def test_an_input_that_few_groups_determine_is_shrunk():
    rng = np.random.default_rng(3)
    design, y, groups = table(8)
    noise = np.repeat(rng.normal(size=(8, 6)), 8, axis=0)  # six more inputs that say nothing
    wide = np.column_stack([design, noise])
    products = cross_products(wide, y, groups)
    flat = fit_mixed(products, Structure(tuple(range(9)), (-1,) * 9, (0,))).model
    shrunk = fit_mixed(products, Structure(tuple(range(9)), (-1, 0, *[1] * 7), (0,))).model
    assert np.linalg.norm(shrunk.beta[3:]) < 0.5 * np.linalg.norm(flat.beta[3:])


def test_score_tests_find_slopes_and_bends():
    for bend in (0.0, 1.0):
        design, y, groups = table(40, bend=bend)
        at = knots(design[:, 1:])
        wide = design_of(at, design[:, 1:])
        found = structures(cross_products(wide, y, groups), 2, at)
        assert found["slopes"].correlated == (0, 1)  # of x, not of w, which is constant
        assert found["intercept"].prior == (-1, 0, 1)
        assert ("spline" in found) == bool(bend)
    for rows in groups:
        y[rows] = design[rows, 1] + 0.1 * np.sin(rows)
    assert "slopes" not in structures(cross_products(wide, y, groups), 2, at)


def test_lines_go_on_for_half_a_range_beyond_what_training_has_seen():
    design, _, _ = table()
    x = np.column_stack([design[:, 1], np.arange(len(design)) % 2])  # two values have no pieces
    at = knots(x)
    far = np.array([[1e3, 5.0], [-1e3, 0.0]])
    low, high = x[:, 0].min(), x[:, 0].max()
    half = (high - low) / 2
    ends = np.array([[high + half, 5.0], [low - half, 0.0]])
    np.testing.assert_allclose(design_of(at, far), design_of(at, ends), rtol=1e-12)
    near = np.array([[high + 0.9 * half, 1.0], *x])
    np.testing.assert_allclose(design_of(at, near)[:, 1:3], near, rtol=1e-12)
    pieces = design_of(at, np.array([[high, 1.0], [high + half, 1.0]]))[:, 3:]
    np.testing.assert_allclose(pieces[0], pieces[1], rtol=1e-12)  # they end with the range


def test_one_task_and_a_constant_target_do_not_fail():
    design, y, groups = table(1)
    model, _ = fit_mixed(cross_products(design, y, groups), SHRUNK)
    assert np.isfinite(model.beta).all() and np.isfinite(model.covariance).all()
    model, _ = fit_mixed(cross_products(design, 0 * y, groups), SHRUNK)
    assert np.isfinite(model.beta).all() and model.noise > 0


def test_the_ridge_of_a_task_alone_is_that_of_the_baselines():
    design, y, groups = table()
    x, at = design[:, 1:], knots(design[:, 1:])
    rivals = Rivals([0.7], None, 3.0)
    model = ridge_alone(rivals, x.shape[1])
    for k in (0, 1, 4):
        known, query = groups[0][:k], groups[0][k:]
        wide = design_of(at, x)
        effects = update_effects(
            model, no_rows(model), wide[None, known], y[None, known], np.ones((1, k))
        )
        found = mixed_answer(model, each(effects, len(query)), wide[query])
        wanted = rivals.answers(x, y, [known], np.zeros(len(query), int), x[query], None)
        np.testing.assert_allclose(found, wanted["per-task"], atol=1e-4)


@pytest.mark.parametrize("structure", [FLAT, SHRUNK], ids=["flat", "shrunk"])
def test_the_deviance_of_dense_matrices_is_flat_at_the_fit(structure):
    """Its slope along each entry of D, s and the prior variances, by differences."""
    design, y, groups = table()
    model, theta = fit_mixed(cross_products(design, y, groups), structure)
    prior = np.full(3, np.inf)
    if structure is SHRUNK:
        prior[1:] = float(model.noise) * np.exp(2 * theta[-2:])
    given = lambda d, s, t: reference.deviance(design, design[:, [0, 1]], y, groups, d, s, t)
    at, h = (model.covariance, float(model.noise), prior), 1e-4
    entries = [(0, 0), (1, 1), *([(0, 1)] if structure is FLAT else [])]
    moves = [(np.full((2, 2), 0.0), h, 0.0)]
    for i, j in entries:
        one = np.zeros((2, 2))
        one[i, j] = one[j, i] = h
        moves.append((one, 0.0, 0.0))
    moves += [(0.0, 0.0, h * np.eye(3)[i]) for i in (1, 2)] if structure is SHRUNK else []
    add = lambda sign, move: given(*(a + sign * b for a, b in zip(at, move, strict=True)))
    for move in moves:
        up, least, down = add(1, move), given(*at), add(-1, move)
        bend = (up - 2 * least + down) / h**2
        assert abs(up - down) / (2 * h) < 1e-2 * np.sqrt(bend)  # a hundredth of a standard error


def test_of_many_groups_mixed_models_learn_from_some_and_a_fold_from_others(monkeypatch):
    monkeypatch.setattr(simple_fit, "CROSSED", 1)
    monkeypatch.setattr(simple_fit, "LEAST", 24)
    design, y, groups = table(40)
    x, fold = design[:, 1:], np.arange(40) % 3
    used = set(np.random.default_rng(0).choice(40, 24, replace=False).tolist())

    def betas(y):
        given = {"known": [0, 2], "ordered": True, "support": groups, "query": groups}
        found = fit_simple(
            x, y, groups, fold, knots(x), shift=0.0, weights=None,
            rivals=[Rivals([0.0], 1.0, 1.0)] * 4,
            summaries=lambda some: np.zeros((len(some), 4)), rng=np.random.default_rng(0), **given,
        )  # fmt: skip
        return [*(m.beta for m in found.by_fold["intercept"]), found.whole["intercept"].beta]

    before = betas(y)
    for task in range(0, 40, 5):
        other = y.copy()
        other[groups[task]] += 0.5
        moved = [
            not np.allclose(a, b, atol=1e-4) for a, b in zip(before, betas(other), strict=True)
        ]
        assert moved == [task in used and f != fold[task] for f in range(4)]
