"""Splits over clients: who owns what, by hand on toys, by properties, and on the real sets."""

import os

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moml.data import by_group, counts, dirichlet, half_and_half, load, pathological, per_client
from moml.data.images.arrays import by_class
from moml.errors import ConfigError, DataError

SPLITS = [
    lambda y, seed: half_and_half(y, 6, 4, seed),
    lambda y, seed: dirichlet(y, 6, 0.5, seed),
    lambda y, seed: pathological(y, 6, 2, seed),
]
labels = st.lists(st.integers(1, 40), min_size=1, max_size=6).flatmap(
    lambda sizes: st.permutations(np.repeat(np.arange(len(sizes)), sizes).tolist())
)
seeds = st.integers(0, 2**40)


def disjoint(rows):
    together = np.concatenate(rows)
    assert len(set(together.tolist())) == len(together)
    for mine in rows:
        assert (np.diff(mine) > 0).all()
    return together


def complete(rows, y):
    assert sorted(disjoint(rows)) == list(range(len(y)))


def test_half_and_half_by_hand():
    y = np.tile([0, 1, 2, 3, 4], 40)  # five classes: two in the first half, three in the second
    rows = half_and_half(y, clients=7, a=5, seed=0)
    assert per_client(y, rows).tolist() == [
        [5, 5, 0, 0, 0],
        [5, 5, 0, 0, 0],
        [5, 5, 0, 0, 0],
        [2, 0, 10, 0, 0],
        [0, 2, 0, 10, 0],
        [2, 0, 0, 0, 10],
        [0, 2, 10, 0, 0],
    ]
    disjoint(rows)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(2, 9), st.integers(2, 7), seeds)
def test_half_and_half_in_the_papers_words(clients, a, classes, seed):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), 14 * a))
    rows = half_and_half(y, clients, a, seed)
    disjoint(rows)
    first, half = clients // 2, classes // 2
    for i, have in enumerate(per_client(y, rows)):
        if i < first:
            assert have.tolist() == [a] * half + [0] * (classes - half)
        else:
            assert sorted(have[:half])[-1] == have[:half].sum() == a // 2
            assert sorted(have[half:])[-1] == have[half:].sum() == 2 * a
    taken = (per_client(y, rows)[first:, half:] > 0).sum(axis=0)
    assert taken.max() - taken.min() <= 1  # round-robin


@settings(max_examples=100, deadline=None)
@given(labels, st.integers(1, 12), st.floats(1e-3, 1e6), seeds, st.integers(0, 3))
def test_dirichlet_gives_every_row_to_one_client(y, clients, alpha, seed, least):
    assume(clients <= len(y))
    try:
        rows = dirichlet(y, clients, alpha, seed, least)
    except DataError as error:
        assert least > 0 and "\n" not in str(error)
        return
    assert len(rows) == clients and min(map(len, rows)) >= least
    complete(rows, y)


@settings(max_examples=100, deadline=None)
@given(labels, st.integers(1, 12), st.integers(1, 6), seeds)
def test_pathological_is_c_classes_a_client(y, clients, c, seed):
    classes, have = np.unique(y, return_counts=True)
    assume(c <= len(classes) and clients <= len(y))
    fits = len(classes) <= clients * c <= np.minimum(have, clients).sum()
    if not fits:
        with pytest.raises(DataError):
            pathological(y, clients, c, seed)
        return
    rows = pathological(y, clients, c, seed)
    complete(rows, y)
    table = per_client(y, rows)
    assert ((table > 0).sum(axis=1) == c).all()
    for column in table.T:  # a class's shards are equal, to a row
        assert column.max() - column[column > 0].min() <= 1


@pytest.mark.parametrize("split", SPLITS)
def test_the_seed_decides(split):
    y = np.tile(np.arange(5), 60)
    same = zip(split(y, 3), split(y, np.random.default_rng(3)), strict=True)
    assert all(np.array_equal(one, other) for one, other in same)
    differ = zip(split(y, 3), split(y, 4), strict=True)
    assert any(not np.array_equal(one, other) for one, other in differ)


def test_labels_may_be_texts_and_of_any_number():
    y = np.tile([7, -2, 30], 20)
    for split in SPLITS[1:]:
        rows = split(y, 0)
        words = split(np.array(["b", "a", "c"])[np.tile([0, 1, 2], 20)], 0)
        pandas = split(np.array(["b", "a", "c"], object)[np.tile([0, 1, 2], 20)], 0)
        for mine, other, theirs in zip(rows, words, pandas, strict=True):
            assert np.array_equal(mine, other) and np.array_equal(mine, theirs)


def test_alpha_says_how_alike_clients_are():
    y = np.tile(np.arange(10), 500)
    own = {}  # the share of a client's largest class, over clients
    for alpha in (0.05, 1.0, 1e6):
        table = per_client(y, dirichlet(y, 20, alpha, seed=0))
        own[alpha] = (table.max(axis=1) / table.sum(axis=1)).mean()
    assert own[0.05] > 0.6 > own[1.0] > 0.2 > own[1e6]
    assert own[1e6] == pytest.approx(0.1, abs=0.001)


def test_dirichlet_shares_have_the_moments_of_their_law():
    y, n, alpha = np.zeros(10_000, int), 5, 0.7
    tables = [per_client(y, dirichlet(y, n, alpha, seed, least=0)) for seed in range(400)]
    share = np.stack(tables)[:, :, 0] / len(y)
    np.testing.assert_allclose(share.mean(axis=0), 1 / n, atol=0.03)
    variance = (1 / n) * (1 - 1 / n) / (n * alpha + 1)
    np.testing.assert_allclose(share.var(axis=0).mean(), variance, rtol=0.1)


def test_training_and_test_belong_to_the_same_clients():
    y, other = np.tile(np.arange(4), 500), np.tile(np.arange(4), 100)
    train, test = (per_client(z, dirichlet(z, 6, 0.5, seed=1, least=0)) for z in (y, other))
    np.testing.assert_allclose(train / 500, test / 100, atol=0.011)
    train, test = (per_client(z, half_and_half(z, 6, 8, s)) for z, s in ((y, 0), (other, 1)))
    np.testing.assert_array_equal(train, test)


def test_pathological_pairs_classes_at_random():
    y = np.tile(np.arange(10), 100)
    table = per_client(y, pathological(y, 100, 2, seed=0)) > 0
    pairs = {tuple(np.flatnonzero(row)) for row in table}
    assert len(pairs) > 30  # of 45
    assert (table.sum(axis=0) == 20).all()


TEN = np.repeat(np.arange(10), 20)


@pytest.mark.parametrize(
    "kind, split, words",
    [
        (DataError, lambda: half_and_half(TEN, 4, 10, 0), "class 0 has 20 rows; 4 clients with a"),
        (DataError, lambda: half_and_half(TEN, 4, 10, 0), "need 25 of it"),
        (DataError, lambda: half_and_half(np.zeros(9, int), 4, 2, 0), "two classes"),
        (ConfigError, lambda: half_and_half(TEN, 1, 2, 0), "clients must be"),
        (ConfigError, lambda: half_and_half(TEN, 4, 1, 0), "a must be a whole number from 2"),
        (ConfigError, lambda: half_and_half(TEN, 4, 2, -1), "seed must be"),
        (DataError, lambda: dirichlet(TEN, 201, 1.0, 0), "201 clients, but there are only 200"),
        (DataError, lambda: dirichlet(TEN, 20, 1.0, 0, 11), "20 clients with 11 rows each"),
        (
            DataError,
            lambda: dirichlet(TEN, 20, 1e-3, 0, 9),
            "1,000 draws at concentration (alpha) 0.001",
        ),
        (ConfigError, lambda: dirichlet(TEN, 0, 1.0, 0), "clients must be"),
        (ConfigError, lambda: dirichlet(TEN, 4, 0.0, 0), "alpha must be above 0"),
        (ConfigError, lambda: dirichlet(TEN, 4, float("nan"), 0), "alpha must be above 0"),
        (ConfigError, lambda: dirichlet(TEN, 4, 1.0, 0, -1), "least must be"),
        (
            ConfigError,
            lambda: pathological(TEN, 20, 11, 0),
            "c must be a whole number from 1 to 10",
        ),
        (DataError, lambda: pathological(TEN, 3, 3, 0), "cannot own all 10 classes"),
        (DataError, lambda: pathological(TEN, 150, 2, 0), "need 300 shards; these labels give 200"),
        (DataError, lambda: pathological(TEN, 201, 1, 0), "only 200 rows"),
        (DataError, lambda: dirichlet([], 1, 1.0, 0), "labels must be [rows]"),
        (DataError, lambda: dirichlet(np.zeros((4, 2), int), 1, 1.0, 0), "shape (4, 2)"),
        (DataError, lambda: dirichlet([0.5, 1.5], 1, 1.0, 0), "got float64"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(kind, split, words):
    with pytest.raises(kind) as caught:
        split()
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_by_group():
    x = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1)
    names, groups = ["ant", "fig", "bee"], ["bug", "fruit", "bug"]
    given = by_class(x, [2, 1, 0, 1, 2, 0], names, "train", groups)
    found = by_group(given)
    assert found.names == ("bug", "fruit") and found.groups is None and found.split == "train"
    assert found.y.tolist() == [0, 0, 0, 0, 1, 1]
    assert found.row.tolist() == found.x.ravel().tolist() == [0, 2, 4, 5, 1, 3]
    with pytest.raises(DataError, match="no groups"):
        by_group(found)


@pytest.mark.skipif(not os.environ.get("MOML_DATA"), reason="MOML_DATA is not set")
@pytest.mark.parametrize(
    "name, split, a, total, first, other, spare",
    [
        ("cifar10", "train", 68, 12_750, 340, 170, 3130),
        ("cifar10", "test", 34, 6_375, 170, 85, 65),
        ("cifar100", "train", 68, 21_250, 680, 170, 698),
        ("cifar100", "test", 15, 4_675, 150, 37, 104),
        ("mnist", "train", 68, 12_750, 340, 170, 3972),
        ("mnist", "train", 168, 31_500, 840, 420, 1222),
        ("mnist", "test", 34, 6_375, 170, 85, 45),
    ],
)
def test_the_papers_clients(name, split, a, total, first, other, spare):
    images = load(name, split)
    if name == "cifar100":
        images = by_group(images)
        assert len(images.names) == 20 and set(counts(images)) == {len(images.y) // 20}
    rows = half_and_half(images.y, 50, a, seed=0)
    assert len(disjoint(rows)) == total
    assert [len(mine) for mine in rows] == [first] * 25 + [other] * 25
    left = counts(images) - per_client(images.y, rows).sum(axis=0)
    assert left.min() == spare
