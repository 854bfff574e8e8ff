"""N-way K-shot tasks: which images, which labels, and that no class is on both sides."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moml.data import shrunk
from moml.errors import ConfigError, DataError
from moml.tasks.episodes import disjoint, episodes, overlapping, parted, rotated
from moml.tasks.sampler import draw, fetch
from moml.types import SampleSpec

CLASSES, EACH = 9, 6


def told(classes=CLASSES, each=EACH):
    """Images that say who they are: pixel (0, 0) is the class, (0, 1) the number in it."""
    x = np.zeros((classes, each, 4, 4, 1), np.uint8)
    x[..., 0, 0, 0] = np.arange(classes)[:, None]
    x[..., 0, 1, 0] = np.arange(each)[None, :]
    return x


def who(x):
    """Class and number of fetched images."""
    pixels = np.rint(255 * np.asarray(x)).astype(int)
    return pixels[..., 0, 0, 0], pixels[..., 0, 1, 0]


def visit(tasks, need, seed=0):
    return jax.tree.map(np.asarray, fetch(draw(jax.random.key(seed), need, tasks), tasks))


@settings(max_examples=8, deadline=None)
@given(st.integers(2, 4), st.integers(1, 2), st.integers(1, 2), st.integers(0, 2**31 - 1))
def test_a_visit_has_k_images_of_each_class_and_asks_about_others(ways, k, q, seed):
    seen = visit(episodes(told(), ways), SampleSpec(3, support=k, query=q), seed)
    for task in range(3):
        support, query = (jax.tree.map(lambda x, t=task: x[t], part) for part in seen.task[:2])
        classes, numbers = who(support.x)
        assert support.y.tolist() == list(range(ways)) * k
        assert query.y.tolist() == list(range(ways)) * q
        by_label = {label: set(classes[support.y == label]) for label in range(ways)}
        assert all(len(one) == 1 for one in by_label.values())  # a label is one class
        assert len(set.union(*by_label.values())) == ways  # and a class one label
        asked, others = who(query.x)
        assert all(set(asked[query.y == label]) == by_label[label] for label in range(ways))
        shown = set(zip(classes, numbers, strict=True))
        assert len(shown) == k * ways and not shown & set(zip(asked, others, strict=True))


def test_a_stream_makes_new_tasks_and_a_table_keeps_its_own():
    stream = visit(episodes(told(), 3), SampleSpec(40, support=1))
    classes, _ = who(stream.task.support.x)
    assert len({tuple(row) for row in classes}) > 30  # of 504 ordered threes
    table = disjoint(jax.random.key(1), CLASSES, 3, 3)
    fixed = episodes(told(), 3, table)
    assert fixed.n == 3 and fixed.ways == 3 and fixed.least == EACH
    for seed in range(5):
        seen = visit(fixed, SampleSpec(2, support=2), seed)
        classes, _ = who(seen.task.support.x)
        np.testing.assert_array_equal(classes, np.tile(np.asarray(table)[seen.ids], 2))


def test_every_class_and_image_comes_as_often_as_any_other():
    seen = visit(episodes(told(), 3), SampleSpec(3000, support=1))
    classes, numbers = who(seen.task.support.x)
    for values, many in ((classes, CLASSES), (numbers, EACH)):
        share = np.bincount(values.ravel(), minlength=many) / values.size
        np.testing.assert_allclose(share, 1 / many, rtol=0.1)


def test_local_steps_draw_fresh_images_of_the_same_classes():
    seen = visit(episodes(told(), 3), SampleSpec(2, support=1, query=1, visits=4, restart=2))
    classes, numbers = who(seen.task.support.x)
    assert classes.shape == (2, 4, 3) and (classes == classes[:, :1]).all()
    assert len({tuple(row) for row in numbers[0]}) > 1
    assert who(seen.task.restart.x)[0].shape == (2, 6)


def test_too_few_images_are_drawn_again_and_again():
    seen = visit(episodes(told(each=2), 3), SampleSpec(1, support=5))
    assert seen.task.support.x.shape == (1, 15, 4, 4, 1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 2**31 - 1))
def test_no_class_is_ever_in_two_parts(sizes, seed):
    if sum(sizes) > CLASSES:
        with pytest.raises(DataError, match=f"{CLASSES} in all"):
            parted(told(), jax.random.key(seed), tuple(sizes))
        return
    parts = parted(told(), jax.random.key(seed), tuple(sizes))
    ids = [set(part[:, 0, 0, 0, 0].tolist()) for part in parts]
    assert [len(one) for one in ids] == list(sizes)
    assert len(set.union(*ids)) == sum(sizes)
    turned = [set(rotated(part)[:, 0].max(axis=(1, 2, 3)).tolist()) for part in parts if len(part)]
    assert sum(map(len, turned)) <= sum(sizes)  # turning moves no class to another part


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(1, 5), st.integers(0, 2**31 - 1))
def test_disjoint_tasks_share_no_class(ways, n, seed):
    if n * ways > CLASSES:
        with pytest.raises(DataError, match=f"{n} disjoint tasks of {ways} classes"):
            disjoint(jax.random.key(seed), CLASSES, ways, n)
        return
    table = np.asarray(disjoint(jax.random.key(seed), CLASSES, ways, n))
    assert table.shape == (n, ways) and len(np.unique(table)) == n * ways


def test_overlapping_tasks_have_different_classes_each():
    table = np.asarray(overlapping(jax.random.key(0), CLASSES, 4, 50))
    assert all(len(set(row)) == 4 for row in table.tolist())
    assert len({tuple(row) for row in table.tolist()}) > 40


def test_turned_images_are_four_classes():
    x = np.random.default_rng(0).integers(0, 256, (3, 2, 4, 4, 1), np.uint8)
    turned = rotated(x)
    assert turned.shape == (12, 2, 4, 4, 1)
    for turns in range(4):
        np.testing.assert_array_equal(
            turned[3 * turns + 1, 1, :, :, 0], np.rot90(x[1, 1, ..., 0], turns)
        )


@pytest.mark.parametrize(
    "images, ways, words",
    [
        (told(), 10, ["10", "9 classes"]),
        (told().astype(float), 3, ["bytes", "float64"]),
        (told()[0], 3, ["classes, each", "[6, 4, 4, 1]"]),
        (told()[:0], 3, ["bytes"]),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(images, ways, words):
    with pytest.raises(DataError) as refused:
        episodes(images, ways)
    assert all(word in str(refused.value) for word in words)


def test_one_way_is_no_task():
    with pytest.raises(ConfigError, match="ways must be a whole number from 2"):
        episodes(told(), 1)


def test_shrinking_keeps_the_mean_and_the_places():
    x = np.zeros((2, 6, 6, 1), np.uint8)
    x[0, :2, :3] = 240  # the upper left
    small = shrunk(x, 3)
    assert small.shape == (2, 3, 3, 1) and small[0, 0, :, 0].tolist() == [240, 120, 0]
    assert small[1].max() == 0 and small[0, 1:].max() == 0
    big = np.random.default_rng(0).integers(0, 256, (5, 105, 105, 1), np.uint8)
    means = lambda x: x.astype(float).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(means(shrunk(big, 28)), means(big), atol=0.1)
    np.testing.assert_array_equal(shrunk(big, 105), big)
