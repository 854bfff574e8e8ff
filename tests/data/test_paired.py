"""Training and test rows of the same clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moml.data import dirichlet, half_and_half, paired_halves, paired_shares, pathological
from moml.data.split.partition import most_of_each, per_client
from moml.errors import ConfigError, DataError

quick = settings(max_examples=40, deadline=None)
Y, Z = np.repeat(np.arange(10), 500), np.repeat(np.arange(10), 100)


def shuffled_labels(each, seed):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(each)), each))


def no_row_twice(*groups):
    rows = np.concatenate([mine for group in groups for mine in group])
    return len(np.unique(rows)) == len(rows)


def test_halves_are_those_of_half_and_half():
    split = paired_halves(Y, Z, 20, 6, 0, a=8, test_a=5)
    np.testing.assert_array_equal(
        per_client(Y, split.train), per_client(Y, half_and_half(Y, 20, 8, 0))
    )
    np.testing.assert_array_equal(
        per_client(Z, split.test), per_client(Z, half_and_half(Z, 20, 5, 0))
    )
    np.testing.assert_array_equal(
        per_client(Z, split.unseen), per_client(Z, half_and_half(Z, 6, 5, 0))
    )
    assert no_row_twice(split.train) and no_row_twice(split.test, split.unseen)


@quick
@given(
    st.lists(st.integers(40, 300), min_size=2, max_size=12),
    st.integers(2, 12),
    st.integers(0, 6),
    st.integers(0, 99),
)
def test_by_default_halves_are_as_large_as_can_be(each, clients, unseen, seed):
    y, z = shuffled_labels(each, seed), shuffled_labels(each[::-1], seed + 1)
    split = paired_halves(y, z, clients, unseen, seed)
    a = most_of_each(np.array(each), clients)
    assert len(split.train) == len(split.test) == clients and len(split.unseen) == unseen
    assert no_row_twice(split.train) and no_row_twice(split.test, split.unseen)
    np.testing.assert_array_equal(
        per_client(y, split.train), per_client(y, half_and_half(y, clients, a, 0))
    )
    with pytest.raises(DataError, match=f"a must be at most {a}"):
        paired_halves(y, z, clients, unseen, seed, a=a + 1)
    owns = lambda y, rows: per_client(y, rows) > 0
    np.testing.assert_array_equal(owns(y, split.train), owns(z, split.test))


@quick
@given(st.integers(2, 30), st.floats(0.5, 50), st.integers(0, 1), st.integers(0, 99))
def test_shares_of_a_class_are_the_same_in_both_parts(clients, alpha, unseen, seed):
    rows = dirichlet(Y, clients, alpha, seed, least=40)
    split = paired_shares(Y, Z, rows, unseen, seed)
    assert no_row_twice(split.test, split.unseen)
    assert sum(map(len, split.test + split.unseen)) == len(Z)  # all are dealt
    mine, theirs = per_client(Y, rows), per_client(Z, split.test + split.unseen)
    assert np.abs(theirs - mine / 5).max() <= 1
    assert not theirs[mine == 0].any()
    assert [len(r) for r in split.train] == [len(r) for r in rows[: clients - unseen]]


def test_unequal_classes_keep_their_shares():
    y, z = shuffled_labels([60, 300, 90], 0), shuffled_labels([50, 20, 40], 1)
    split = paired_shares(y, z, pathological(y, 6, 2, 0), 2, 0)
    both = per_client(y, split.train), per_client(z, split.test)
    np.testing.assert_array_equal(both[0] > 0, both[1] > 0)


@pytest.mark.parametrize(
    "error, action, words",
    [
        (ConfigError, lambda: paired_halves(Y, Z, 1, 0, 0), "clients must be .* from 2; got 1"),
        (ConfigError, lambda: paired_halves(Y, Z, 4, 0, 0, a=1), "a must be .* from 2; got 1"),
        (ConfigError, lambda: paired_halves(Y, Z, 4, -1, 0), "unseen must be .* from 0; got -1"),
        (ConfigError, lambda: paired_shares(Y, Z, [Y, Y], 2, 0), "unseen must be .* to 1; got 2"),
        (DataError, lambda: paired_halves(Y[:9], Z[:9], 4, 0, 0), "needs two classes"),
        (DataError, lambda: paired_halves(Y, Z[:200], 4, 0, 0), "10 classes, test rows of 2"),
        (
            DataError,
            lambda: paired_halves(Y, Z, 90, 9, 0),
            "90 and 9 clients are too many",
        ),
        (
            DataError,
            lambda: paired_halves(Y, Z, 20, 0, 0, a=60),
            "0 has 500 .* need 660 of it; a",
        ),
        (
            DataError,
            lambda: paired_shares(Y, Z, [np.arange(2), np.arange(2, 5000)], 0, 0),
            "client 0 has 2 training rows, and so no test rows",
        ),
    ],
)
def test_what_cannot_be_split(error, action, words):
    with pytest.raises(error, match=words):
        action()
