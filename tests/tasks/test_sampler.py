import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moml.tasks import from_arrays, sine
from moml.tasks.sampler import distinct, distinct_or_not, draw, draw_ids, fetch
from moml.types import SampleSpec, Tasks

distinct_jit = jax.jit(distinct, static_argnums=2)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(0, 10**9), st.sampled_from([1, 2, 7, 40]))
def test_distinct_is_distinct_and_in_range(seed, more, size):
    ids = np.asarray(distinct_jit(jax.random.key(seed), jnp.asarray(size + more), size))
    assert len(set(ids)) == size
    assert ids.min() >= 0
    assert ids.max() < size + more


@pytest.mark.parametrize("n, size", [(4, 2), (5, 3), (4, 4)])
@pytest.mark.parametrize("traced", [False, True])
def test_every_ordered_choice_is_equally_likely(n, size, traced):
    draws = 24_000
    keys = jax.random.split(jax.random.key(1), draws)
    number = jnp.asarray(n) if traced else n
    rows = np.asarray(jax.vmap(lambda key: distinct(key, number, size))(keys))
    choices = list(itertools.permutations(range(n), size))
    counts = np.array([(rows == choice).all(axis=1).sum() for choice in choices])
    expected = draws / len(choices)
    chi2 = ((counts - expected) ** 2 / expected).sum()
    freedom = len(choices) - 1
    assert chi2 < freedom + 5 * np.sqrt(2 * freedom)


def test_sorting_path_is_distinct_too():
    ids = np.asarray(distinct(jax.random.key(0), 90, 40))
    assert len(set(ids)) == 40
    assert ids.max() < 90


def test_a_million_tasks_without_a_permutation():
    program = jax.make_jaxpr(lambda key: draw_ids(key, 10**6, 3))(jax.random.key(0))
    biggest = max(int(np.prod(var.aval.shape)) for eqn in program.eqns for var in eqn.outvars)
    assert biggest < 100
    ids = jax.vmap(lambda key: draw_ids(key, 10**6, 3))(jax.random.split(jax.random.key(0), 1000))
    assert np.asarray(ids).max() > 900_000


def test_small_tasks_repeat_their_rows():
    rows = np.asarray(distinct_or_not(jax.random.key(0), 3, 50))
    assert set(rows) == {0, 1, 2}
    rows = np.asarray(distinct_or_not(jax.random.key(0), jnp.asarray(3), 50))
    assert set(rows) == {0, 1, 2}


def test_support_and_query_are_disjoint_and_labelled():
    n, m = 4, 9
    x = np.arange(n * m, dtype=float).reshape(n, m, 1)
    tasks = from_arrays(x, 10 * x)
    need = SampleSpec(3, support=4, query=3, hessian=2, restart=5)
    visit = fetch(draw(jax.random.key(3), need, tasks), tasks)
    for row, task in enumerate(np.asarray(visit.ids)):
        sets = [np.asarray(s.x[row, :, 0]) for s in visit.task if s is not None]
        assert [len(s) for s in sets] == [4, 3, 2, 5]
        together = np.concatenate(sets[:3])
        assert len(set(together)) == 9
        for samples in sets:
            assert ((samples // m).astype(int) == task).all()
    np.testing.assert_array_equal(10 * visit.task.support.x, visit.task.support.y)


def test_ragged_tasks_stay_inside_their_rows():
    sizes = [2, 5, 9]
    x = np.broadcast_to(np.arange(9.0), (3, 9))[..., None]
    tasks = from_arrays(x, x, sizes)
    visit = fetch(draw(jax.random.key(0), SampleSpec(3, support=4, visits=6), tasks), tasks)
    assert visit.task.support.x.shape == (3, 6, 4, 1)
    for row, task in enumerate(np.asarray(visit.ids)):
        seen = np.asarray(visit.task.support.x[row]).ravel()
        assert seen.max() < sizes[task]
    mask = np.asarray(tasks.full(jnp.arange(3)).mask)
    assert mask.sum(axis=1).tolist() == sizes


def test_shapes_of_visits_and_times():
    tasks = sine()
    need = SampleSpec(3, support=2, query=1, visits=4)
    visit = draw(jax.random.key(0), need, tasks)
    assert visit.task.support.x.shape == (3, 4, 2, 1)
    several = draw(jax.random.key(0), SampleSpec(3, support=2, times=5), tasks)
    assert several.ids.shape == (5, 3)
    assert several.task.support.x.shape == (5, 3, 2, 1)
    assert several.task.query is None


def test_a_stream_gives_new_tasks():
    tiled = lambda index, key, ids, size: jnp.tile(ids[:, None], (1, size))
    stream = Tasks(None, tiled, lambda data, ids, drawn: drawn)
    visit = draw(jax.random.key(0), SampleSpec(5, support=2), stream)
    assert len(set(np.asarray(visit.ids).tolist())) == 5
