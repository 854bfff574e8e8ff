import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.tasks.sampler import draw, fetch
from moml.types import SampleSpec


def test_sine_is_the_papers_25_waves():
    tasks = moml.sine()
    ids = jnp.arange(25)
    samples = tasks.draw(jax.random.key(0), ids, 200)
    amplitude, phase = np.divmod(np.arange(25), 5)
    expected = (amplitude + 1)[:, None] * np.sin(
        (phase + 1)[:, None] * np.pi / 5 + np.asarray(samples.x[..., 0])
    )
    np.testing.assert_allclose(samples.y[..., 0], expected, rtol=1e-12, atol=1e-12)
    assert -5 <= float(samples.x.min()) < -4.9
    assert 4.9 < float(samples.x.max()) <= 5


def test_noise_is_added_to_labels_alone():
    ids = jnp.arange(25)
    clean = moml.sine().draw(jax.random.key(0), ids, 400)
    noisy = moml.sine(noise=0.5).draw(jax.random.key(0), ids, 400)
    np.testing.assert_array_equal(clean.x, noisy.x)
    assert abs(float(jnp.std(noisy.y - clean.y)) - 0.5) < 0.01


def test_unseen_waves_lie_in_range():
    tasks = moml.unseen_sine(jax.random.key(0), 300)
    y = tasks.draw(jax.random.key(1), jnp.arange(300), 500).y
    height = np.abs(np.asarray(y)).max(axis=(1, 2))
    assert height.min() > 0.99
    assert height.max() <= 5


@pytest.mark.parametrize("unequal", [False, True])
def test_synthetic_is_learnable_and_heterogeneous(unequal):
    tasks = moml.synthetic(jax.random.key(0), 12, samples=60, unequal=unequal)
    data = tasks.full(jnp.arange(12))
    assert data.x.shape == (12, 60, 60)
    assert set(np.unique(data.y)) <= set(range(10))
    sizes = np.asarray(data.mask).sum(axis=1)
    assert (len(set(sizes)) > 1) == unequal
    assert sizes.min() >= 10
    spread = np.asarray(data.x).mean(axis=1).std(axis=0).mean()
    assert spread > 0.5  # the tasks' inputs have different centres
    visit = fetch(draw(jax.random.key(1), SampleSpec(5, support=3), tasks), tasks)
    assert visit.task.support.y.dtype == data.y.dtype


def test_synthetic_labels_follow_the_tasks_own_linear_rule():
    tasks = moml.synthetic(jax.random.key(0), 3, samples=2000, features=5, classes=3)
    data = tasks.full(jnp.arange(3))
    for x, y in zip(np.asarray(data.x), np.asarray(data.y), strict=True):
        inputs = np.c_[x, np.ones(len(x))]
        weights, *_ = np.linalg.lstsq(inputs, np.eye(3)[y], rcond=None)
        assert ((inputs @ weights).argmax(axis=1) == y).mean() > 0.75


def test_fresh_samples_follow_the_same_rule_and_are_others():
    like = {"n": 3, "samples": 1000, "features": 5, "classes": 3}
    ids = jnp.arange(3)
    data = moml.synthetic(jax.random.key(0), **like).full(ids)
    fresh = moml.synthetic(jax.random.key(0), **like, fresh=True).full(ids)
    for task in range(3):
        rule = lambda x: np.c_[x, np.ones(len(x))]
        weights, *_ = np.linalg.lstsq(
            rule(data.x[task]), np.eye(3)[np.asarray(data.y[task])], rcond=None
        )
        right = (rule(fresh.x[task]) @ weights).argmax(axis=1) == np.asarray(fresh.y[task])
        assert right.mean() > 0.75
    assert not np.isin(np.asarray(fresh.x), np.asarray(data.x)).any()


@pytest.mark.parametrize(
    "x, y, sizes, words",
    [
        (np.zeros((3, 4)), np.zeros((3, 5)), None, "same [tasks, samples]"),
        (np.zeros(3), np.zeros(3), None, "same [tasks, samples]"),
        (np.zeros((0, 4)), np.zeros((0, 4)), None, "same [tasks, samples]"),
        (np.zeros((3, 4)), np.zeros((3, 4)), [1, 2, 5], "from 1 to 4"),
        (np.zeros((3, 4)), np.zeros((3, 4)), [1, 2], "3 whole numbers"),
        (np.zeros((3, 4)), np.zeros((3, 4)), [0, 2, 3], "from 1 to 4"),
        (np.zeros((3, 4)), np.zeros((3, 4)), [1.5, 2, 3], "whole numbers"),
        ([["word", "other"]], [[1, 2]], None, "numbers"),
        (
            np.zeros((3, 4)),
            np.array([[1, 1, 1, 1.0], [1, 1, np.nan, 1], [1] * 4]),
            None,
            "task 1, row 2",
        ),
    ],
)
def test_arrays_that_do_not_fit(x, y, sizes, words):
    with pytest.raises(moml.errors.DataError) as caught:
        moml.from_arrays(x, y, sizes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
