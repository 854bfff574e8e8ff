import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import moml
from moml.data import dirichlet
from moml.tasks import buckets, from_arrays, from_rows
from moml.tasks.sampler import draw, fetch
from moml.types import SampleSpec

SIZES = [2, 9, 5]
NEEDS = [
    SampleSpec(3, support=2, query=2, restart=3),
    SampleSpec(2, support=4, visits=6),
    SampleSpec(2, support=3, times=4),
]


def padded(x, rows):
    """What `from_arrays` wants of the same clients."""
    out = np.zeros((len(rows), max(map(len, rows)), *x.shape[1:]), x.dtype)
    for i, mine in enumerate(rows):
        out[i, : len(mine)] = x[mine]
    return out


@pytest.mark.parametrize("sizes", [SIZES, [6, 6, 6]])
@pytest.mark.parametrize("need", NEEDS)
def test_equal_to_arrays(sizes, need):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.integers(0, 4, 20)
    rows = np.split(rng.permutation(20)[: sum(sizes)], np.cumsum(sizes)[:-1])
    ragged = from_rows(x, y, rows)
    arrays = from_arrays(padded(x, rows), padded(y, rows), sizes)
    assert (ragged.n, ragged.least) == (arrays.n, arrays.least) == (3, min(sizes))
    one, other = (fetch(draw(jax.random.key(1), need, tasks), tasks) for tasks in (ragged, arrays))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    one, other = (tasks.full(jnp.arange(3)) for tasks in (ragged, arrays))
    np.testing.assert_array_equal(one.mask, other.mask)
    for mine, theirs in ((one.x, other.x), (one.y, other.y)):
        np.testing.assert_array_equal(mine[one.mask], theirs[other.mask])


def test_a_client_sees_its_own_rows_alone():
    y = np.arange(300)
    rows = dirichlet(y % 5, 12, 0.3, seed=0)
    tasks = from_rows(y[:, None] / 1.0, y, rows)
    visit = fetch(draw(jax.random.key(0), SampleSpec(12, support=40, visits=5), tasks), tasks)
    np.testing.assert_array_equal(visit.task.support.x[..., 0], visit.task.support.y)
    for i, seen in zip(visit.ids, visit.task.support.y, strict=True):
        assert set(seen.ravel().tolist()) <= set(rows[i].tolist())
        if len(rows[i]) >= 40:
            assert all(len(set(one.tolist())) == 40 for one in seen)


def test_bytes_stay_bytes_until_they_are_fetched():
    x = np.arange(12, dtype=np.uint8).reshape(6, 2) * 20
    ids, samples = jnp.array([1]), jnp.array([[0, 2]])
    rows = [[0, 2, 4], [5, 3, 1]]
    batch = from_rows(x, np.arange(6), rows).fetch(ids, samples)
    assert batch.x.dtype == jnp.result_type(float)
    np.testing.assert_allclose(batch.x[0], x[[5, 1]] / 255)
    assert batch.y.tolist() == [[5, 1]]
    raw = from_rows(x, np.arange(6), rows, transform=lambda x: x).fetch(ids, samples)
    np.testing.assert_array_equal(raw.x[0], x[[5, 1]])
    assert raw.x.dtype == jnp.uint8


def test_one_large_client_costs_the_small_ones_nothing():
    sizes = [4000] + [3] * 500
    x = np.zeros((sum(sizes), 8), np.float32)
    rows = np.split(np.arange(len(x)), np.cumsum(sizes)[:-1])
    tasks = from_rows(x, np.arange(len(x)), rows)
    ids = jnp.arange(1, 9)
    visit = jax.make_jaxpr(lambda key: tasks.fetch(ids, tasks.draw(key, ids, 2)))
    eqns = visit(jax.random.key(0)).eqns
    assert max(int(np.prod(var.aval.shape)) for eqn in eqns for var in eqn.outvars) <= 8 * 2 * 8
    assert tasks.full(ids).x.shape == (8, 3, 8)  # as wide as these need
    assert jax.jit(tasks.full)(ids).x.shape == (8, 4000, 8)  # traced: as any might need


def test_training_on_clients_of_unequal_sizes():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (60, 2, 2), dtype=np.uint8)
    y = (x.mean(axis=(1, 2)) > 127).astype(np.int32)
    tasks = from_rows(x, y, np.split(np.arange(60), [5, 12, 40]))
    net = moml.mlp(4, 8, 2)
    loss = moml.cross_entropy(lambda params, x: net.predict(params, x.reshape(len(x), -1)))
    learner = moml.fit(
        "maml", loss, net.init(jax.random.key(0)), tasks, iterations=5, k=2, tasks_per_step=2
    )
    assert moml.evaluate(learner, loss, tasks, shots=2).shape == (4,)


@pytest.mark.parametrize(
    "x, y, rows, words",
    [
        (np.zeros((4, 2)), np.zeros(5), [[0]], "same [rows]"),
        (np.zeros(()), np.zeros(()), [[0]], "same [rows]"),
        (np.zeros((0, 2)), np.zeros(0), [[0]], "same [rows]"),
        (["word"], [1], [[0]], "numbers"),
        (np.zeros((4, 2)), np.zeros(4), [], "got none"),
        (np.zeros((4, 2)), np.zeros(4), [[0], []], "client 1 has no samples"),
        (np.zeros((4, 2)), np.zeros(4), [[0], [4]], "client 1 must be whole numbers from 0 to 3"),
        (np.zeros((4, 2)), np.zeros(4), [[-1]], "from 0 to 3"),
        (np.zeros((4, 2)), np.zeros(4), [[0.5]], "whole numbers"),
        (np.zeros((4, 2)), np.zeros(4), [[[0]]], "whole numbers"),
        (np.zeros((4, 2)), np.zeros(4), [[0], [2, 1, 2]], "client 1 has a row twice"),
        (np.zeros((4, 2)), [1, 1, 1, np.nan], [[0], [2, 3]], "y must be finite; client 1, row 3"),
        (np.full((4, 2), np.inf), np.ones(4), [[1], [2, 3]], "client 0, row 1 is not (3"),
    ],
)
def test_rows_that_do_not_fit(x, y, rows, words):
    with pytest.raises(moml.errors.DataError) as caught:
        from_rows(x, y, rows)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_rows_that_nobody_owns_are_not_kept():
    x, rows, key = np.arange(4000.0)[:, None], [[3999, 7], [8]], jax.random.key(0)
    held = lambda x: [
        np.shape(value)
        for value in jax.make_jaxpr(from_rows(x, x, rows).fetch)(jnp.arange(2), drawn).consts
    ]
    drawn = from_rows(x, x, rows).draw(key, jnp.arange(2), 2)
    assert max(held(x)) == (3, 1)
    assert max(held(jnp.asarray(x))) == (4000, 1)  # it is the caller's, and may be shared
    for data in (x, jnp.asarray(x)):
        batch = from_rows(data, x, rows).full(jnp.arange(2))
        assert batch.y[batch.mask].ravel().tolist() == [3999, 7, 8]


def test_what_nobody_owns_may_be_anything():
    tasks = from_rows([[1.0], [np.nan]], [0, 1], [[0], [0]])
    assert tasks.n == 2


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=60))
def test_buckets_hold_everybody_once_and_pad_to_less_than_double(sizes):
    found = buckets(sizes)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(sizes)))
    for ids in found:
        mine = np.array(sizes)[ids]
        assert mine.max() < 2 * mine.min()
        assert len(ids) * mine.max() < 2 * mine.sum()
    largest = [max(sizes[i] for i in ids) for ids in found]
    assert largest == sorted(largest)


def test_buckets_at_their_edges():
    assert [ids.tolist() for ids in buckets([1, 2, 3, 4, 5, 8, 9])] == [
        [0], [1], [2, 3], [4, 5], [6]
    ]  # fmt: skip
    assert buckets(np.array([2**52, 2**52 + 1]))[0].tolist() == [0]
    with pytest.raises(moml.errors.DataError, match="whole numbers from 1"):
        buckets([3, 0])


def test_what_a_client_draws_need_not_hang_on_the_others():
    x, y = np.arange(34.0)[:, None], np.arange(34)
    of = lambda others, **how: from_rows(x, y, [np.arange(17), others], **how)
    first = lambda tasks: tasks.draw(jax.random.key(0), jnp.arange(2), 17)[0].tolist()
    alone, among = of([33], alike=False), of(np.arange(17, 34), alike=False)
    assert first(alone) == first(among) == first(of([33]))
    assert first(among) != first(of(np.arange(17, 34)))  # which takes a short cut
