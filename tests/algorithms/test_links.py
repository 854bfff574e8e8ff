"""Mixed models of logarithms: scales, the mean of a target, and the same fit as by hand."""

import numpy as np
import pytest

from moml.algorithms.tabular.links import OWN, linked, log_link, mean_target
from moml.algorithms.tabular.mixed import (
    Effects,
    MixedModel,
    Structure,
    cross_products,
    fit_mixed,
    mixed_answer,
    no_rows,
    update_effects,
)
from moml.algorithms.tabular.rivals import Rivals
from moml.algorithms.tabular.simple_fit import fit_simple
from moml.models.table import knots

FREE = np.array([-np.inf, np.inf])


def factors(tasks=12, seed=0):
    """y = exp(u_i + 0.5 x + noise), standardised; and the shift that makes it positive again."""
    rng = np.random.default_rng(seed)
    groups = np.split(np.arange(8 * tasks), tasks)
    x = rng.normal(size=8 * tasks)
    logs = np.repeat(rng.normal(size=tasks), 8) + 0.5 * x + 0.2 * rng.normal(size=8 * tasks)
    raw = np.exp(logs)
    return x[:, None], (raw - raw.mean()) / raw.std(), raw.mean() / raw.std(), groups


def test_the_mean_of_a_lognormal_target():
    link, rng = np.array([2.0, 0.1, 0.3, 0.5]), np.random.default_rng(0)
    for mean, variance in ((0.0, 0.0), (1.0, 0.5), (-2.0, 3.0)):
        h = mean + np.sqrt(variance) * rng.normal(size=1_000_000)
        drawn = np.exp(0.3 + 0.5 * h) - 2.0
        given = mean_target(link, np.array([mean]), np.array([variance]), FREE)
        np.testing.assert_allclose(given, drawn.mean(), rtol=5e-3)


def test_a_far_mean_is_bounded_and_a_target_below_all_counts_as_the_least():
    link, bounds = np.array([2.0, 0.5, 0.0, 1.0]), np.array([-1.9, 7.0])
    far = mean_target(link, np.array([1e6, -1e6]), np.array([1e9, 0.0]), bounds)
    np.testing.assert_allclose(far, [7.0, -1.9])
    np.testing.assert_allclose(linked(link, np.array([-5.0, -1.5])), np.log([0.5, 0.5]))
    assert linked(OWN, far) is far
    np.testing.assert_array_equal(mean_target(OWN, far, far, np.array([0.0, 1.0])), [1.0, 0.0])


@pytest.mark.parametrize("least", [0.0, 1e-9, -0.5])
def test_there_is_no_logarithm_of_a_zero_a_rounded_zero_or_a_negative_target(least):
    assert log_link(np.array([least, 1.0, 3.0]), 0.0) is None
    assert log_link(np.zeros(3), 0.0) is None


def test_it_is_the_mixed_model_of_the_logarithms():
    x, y, shift, groups = factors()
    design, link = np.column_stack([np.ones(len(x)), x]), log_link(y, shift)
    logs = np.log(y + shift)
    z = (logs - logs.mean()) / logs.std()
    structure = Structure((0, 1), (-1, -1), (0, 1))
    by_hand = fit_mixed(cross_products(design, z, groups), structure).model
    model = by_hand._replace(link=link, bounds=FREE)
    known, asked = groups[0][:3], groups[0][3:]
    ones = np.ones((1, 3))
    effects = update_effects(model, no_rows(model), design[None, known], z[None, known], ones)
    np.testing.assert_allclose(linked(link, y[known]), z[known], rtol=1e-12)
    each = Effects(*(np.repeat(part, len(asked), axis=0) for part in effects))
    random, c = design[asked][:, by_hand.random], effects.covariance[0]
    mean = design[asked] @ by_hand.beta + random @ effects.mean[0]
    variance = by_hand.noise + np.array([row @ c @ row for row in random])
    wanted = np.exp(logs.mean() + logs.std() * mean + logs.std() ** 2 * variance / 2) - shift
    np.testing.assert_allclose(mixed_answer(model, each, design[asked]), wanted, rtol=1e-10)


def fitted(y, shift, x, groups):
    given = {"known": [0, 2], "ordered": True, "support": groups, "query": groups}
    return fit_simple(
        x, y, groups, np.arange(len(groups)) % 3, knots(x), shift=shift, weights=None,
        rivals=[Rivals([0.0], 1.0, 1.0)] * 4, rng=np.random.default_rng(0),
        summaries=lambda some: np.zeros((len(some), 4)), **given,
    )  # fmt: skip


def test_tables_of_positive_targets_that_differ_by_factors_have_models_of_logarithms():
    x, y, shift, groups = factors()
    models = fitted(y, shift, x, groups).whole
    logs = {name: one for name, one in models.items() if name.startswith("log-")}
    assert {"log-mean", "log-intercept"} <= {*logs}
    assert all(isinstance(one, MixedModel) and one.link.size == 4 for one in logs.values())
    assert models["intercept"].link.size == 0
    for other in (0.0, 1e3 * shift):  # not positive; all but equal
        assert not any(name.startswith("log-") for name in fitted(y, other, x, groups).whole)
