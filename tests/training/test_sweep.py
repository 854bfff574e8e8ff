import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.training.compose import init_key
from moml.training.rows import mean_of_seeds
from tests.support.often import often

NET = moml.mlp(1, 8, 1, activation=jnp.tanh)
LOSS = moml.mse(NET.predict)


@pytest.mark.parametrize(
    "name", often(["moml-v2", "localmoml", "moml-v1", "nasa"], ["moml-v2", "localmoml"])
)
def test_a_member_is_the_run_of_its_own(name):
    grid = {"eta": [0.01, 0.02], "beta": [0.2, 0.6]}
    many = moml.sweep(name, LOSS, NET.init, moml.sine(), seeds=2, grid=grid, iterations=30)
    assert len(many.settings) == 8
    for i in (0, 3, 6):
        setting = dict(many.settings[i])
        start = NET.init(init_key(setting["seed"]))
        alone = moml.fit(name, LOSS, start, moml.sine(), iterations=30, **setting)
        member = jax.tree.map(lambda x, i=i: x[i], many.meta)
        for a, b in zip(jax.tree.leaves(alone.meta), jax.tree.leaves(member), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


def test_a_list_of_settings_is_not_multiplied_out():
    listed = [{"eta": 0.01, "beta": 0.6}, {"eta": 0.02, "beta": 0.2}]
    many = moml.sweep("moml-v1", LOSS, NET.init, moml.sine(), seeds=2, grid=listed, iterations=5)
    assert [(m["eta"], m["beta"], m["seed"]) for m in many.settings] == [
        (0.01, 0.6, 0), (0.01, 0.6, 1), (0.02, 0.2, 0), (0.02, 0.2, 1)
    ]  # fmt: skip
    np.testing.assert_allclose(many.hyper.beta, [0.6, 0.6, 0.2, 0.2])


@pytest.mark.parametrize("name", ["pfedme", "ditto"])
def test_so_it_is_with_clients_that_fail(name):
    grid = {"eta": [0.01, 0.02], "alpha": [0.002, 0.006]}
    fails = {"dropout": 0.4, "straggle": 0.5, "iterations": 60}
    many = moml.sweep(name, LOSS, NET.init, moml.sine(), seeds=2, grid=grid, **fails)
    for i in (0, 3, 6):
        setting = dict(many.settings[i])
        start = NET.init(init_key(setting["seed"]))
        alone = moml.fit(name, LOSS, start, moml.sine(), **fails, **setting)
        for a, b in zip(jax.tree.leaves(alone.meta), jax.tree.leaves(many.meta), strict=True):
            np.testing.assert_allclose(a, b[i], rtol=1e-11, atol=1e-13)


def test_lost_members_are_marked_and_the_others_go_on():
    grid = {"eta": [0.01, 1e8]}
    many = moml.sweep(
        "maml", LOSS, NET.init, moml.sine(), seeds=2, grid=grid, iterations=300, chunk=50, k=2
    )
    assert many.lost.tolist() == [False, False, True, True]
    assert (many.lost_at[2:] >= 0).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(many.meta))
    assert np.isnan(many.history[2:, -1]).all()
    assert np.isfinite(many.history[:2]).all()
    calm = moml.sweep(
        "maml", LOSS, NET.init, moml.sine(), seeds=2, grid={"eta": [0.01]}, iterations=300, k=2
    )
    for a, b in zip(jax.tree.leaves(calm.meta), jax.tree.leaves(many.meta), strict=True):
        np.testing.assert_allclose(a, b[:2], rtol=1e-10)


def test_no_average_over_lost_seeds():
    values = np.array([1.0, np.nan, 3.0])
    assert mean_of_seeds(values, np.isnan(values)) == (2.0, 1.0)
    assert mean_of_seeds(values, np.ones(3, bool)) == (None, None)


def test_no_iterations_is_the_untrained_control():
    none = moml.sweep("maml", LOSS, NET.init, moml.sine(), seeds=3, iterations=0)
    first = NET.init(init_key(1))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(none.meta), strict=True):
        np.testing.assert_array_equal(a, b[1])
    assert none.samples == 0


@pytest.mark.parametrize(
    "given, words",
    [
        ({"seeds": 0}, ["seeds", "0"]),
        ({"grid": {"delta": [1.0]}}, ["delta", "eta"]),
        ({"grid": {"eta": []}}, ["eta"]),
        ({"grid": [{"eta": 0.1}, {"beta": 0.1}]}, ["same names"]),
        ({"grid": [{"delta": 0.1}]}, ["delta", "eta"]),
        ({"eta": 0.1}, ["eta", "grid"]),
        ({"grid": {"beta": [0.5]}}, ["beta", "eta, alpha"]),
        ({"grid": {"eta": [0.1, -1.0]}}, ["eta", "-1"]),
        ({"grid": {"alpha": [-2.0]}}, ["alpha", "-2"]),
        ({"iterations": -1}, ["iterations", "-1"]),
    ],
)
def test_bad_sweeps(given, words):
    with pytest.raises(moml.errors.ConfigError) as caught:
        moml.sweep("maml", LOSS, NET.init, moml.sine(), **given)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
