"""Local epochs: what clients of unequal sizes draw when they go through all their samples."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.errors import ConfigError
from moml.tasks import from_arrays, sine
from moml.tasks.sampler import draw, fetch, sets_in, shuffled
from moml.types import SampleSpec

SIZES = (12, 3, 7, 5, 12, 9, 4)
EACH, E = 4, 3
NEED = SampleSpec(len(SIZES), support=EACH, epochs=E)


def tasks_of(sizes=SIZES):
    x = np.broadcast_to(np.arange(float(max(sizes))), (len(sizes), max(sizes)))[..., None]
    owner = np.broadcast_to(np.arange(len(sizes))[:, None], x.shape[:2])
    return from_arrays(x, owner, sizes)


def drawn(need=NEED, sizes=SIZES, seed=0):
    return jax.tree.map(np.asarray, draw(jax.random.key(seed), need, tasks_of(sizes)))


def test_a_client_does_as_many_steps_as_its_samples_fill():
    visit = drawn()
    assert visit.ids.tolist() == list(range(7))
    assert visit.turnout.steps.tolist() == [E * max(n // EACH, 1) for n in SIZES]
    assert visit.turnout.steps.tolist() == [9, 3, 3, 3, 9, 6, 3]
    assert visit.turnout.present.all() and visit.turnout.weight.tolist() == [1] * 7
    assert visit.task.support.shape == (7, 9, EACH)  # as many steps as the largest has


@pytest.mark.parametrize("seed", range(5))
def test_in_an_epoch_no_sample_is_seen_twice(seed):
    visit = drawn(seed=seed)
    for n, steps, rows in zip(SIZES, visit.turnout.steps, visit.task.support, strict=True):
        epochs = rows[:steps].reshape(E, -1)
        assert rows.min() >= 0 and rows.max() < n  # also past the last step
        for epoch in epochs:
            assert len(epoch) == max(n // EACH, 1) * EACH
            if n >= EACH:
                assert len(set(epoch.tolist())) == len(epoch)
            else:  # a client smaller than a batch: all its samples, then some of them again
                assert sorted(epoch[:n].tolist()) == list(range(n))
        orders = {tuple(epoch.tolist()) for epoch in epochs}
        assert n < EACH or len(orders) == E  # each epoch has an order of its own


def test_over_epochs_every_sample_has_its_turn():
    """The part of an epoch that fills no batch is another one each time."""
    many = drawn(NEED._replace(epochs=60))
    for n, steps, rows in zip(SIZES, many.turnout.steps, many.task.support, strict=True):
        counts = np.bincount(rows[:steps].ravel(), minlength=n)
        used = max(n // EACH, 1) * EACH
        assert counts.min() > 0 and counts.sum() == 60 * used
        if n % EACH == 0:
            assert counts.tolist() == [60] * n


@pytest.mark.parametrize("n, width", [(3, 3), (3, 5)])
def test_every_order_is_equally_likely(n, width):
    keys = jax.random.split(jax.random.key(1), 12_000)
    rows = np.asarray(jax.vmap(lambda key: shuffled(key, jnp.asarray(n), width))(keys))
    assert (rows[:, n:] == np.arange(n, width)).all()
    orders = itertools.permutations(range(n))
    counts = np.array([(rows[:, :n] == order).all(axis=1).sum() for order in orders])
    chi2 = ((counts - 2000) ** 2 / 2000).sum()
    assert chi2 < 5 + 5 * np.sqrt(10)


def test_a_draw_does_not_depend_on_the_sizes_of_other_clients():
    """As at a node, which knows its own clients alone."""
    one, other = drawn(), drawn(sizes=(50, 3, 7, 5, 12, 1, 4))
    for i in (1, 2, 3, 4, 6):
        steps = one.turnout.steps[i]
        assert steps == other.turnout.steps[i]
        np.testing.assert_array_equal(one.task.support[i, :steps], other.task.support[i, :steps])


def test_clients_of_equal_sizes_need_no_turnout():
    visit = drawn(sizes=(9,) * 7)
    assert visit.turnout is None and visit.task.support.shape == (7, 2 * E, EACH)
    busy = drawn(NEED._replace(dropout=0.5, straggle=0.5), sizes=(9,) * 7)
    np.testing.assert_array_equal(busy.task.support, visit.task.support)


def test_sets_of_a_step_are_apart_and_fetched_from_their_client():
    need = SampleSpec(7, support=2, query=1, hessian=1, restart=3, epochs=2)
    tasks = tasks_of((12, 8, 9, 4, 5, 12, 6))
    visit = fetch(draw(jax.random.key(0), need, tasks), tasks)
    task = jax.tree.map(np.asarray, visit.task)
    steps = np.asarray(visit.turnout.steps)
    assert steps.tolist() == [6, 4, 4, 2, 2, 6, 2]
    for i, count in enumerate(steps):
        sets = [each.x[i, :count, :, 0] for each in (task.support, task.query, task.hessian)]
        epochs = np.concatenate(sets, axis=1).reshape(2, -1)
        assert all(len(set(epoch.tolist())) == len(epoch) for epoch in epochs)
        assert (task.support.y[i] == i).all() and (task.query.y[i] == i).all()
    assert task.restart.x.shape == (7, 3, 1)


def test_stragglers_stop_early_but_never_before_the_first_step():
    need, tasks = NEED._replace(straggle=0.5, epochs=1), tasks_of()
    one = jax.jit(lambda key: draw(key, need, tasks).turnout.steps)
    steps = np.stack([one(key) for key in jax.random.split(jax.random.key(0), 200)])
    whole = [3, 1, 1, 1, 3, 2, 1]
    for own, most in zip(steps.T, whole, strict=True):
        assert set(own.tolist()) == set(range(1, most + 1))
    late = np.mean(steps[:, [0, 4]] < 3)
    assert late == pytest.approx(0.5, abs=0.1)


def test_sizes_are_the_weights():
    assert drawn(NEED._replace(weighted=True)).turnout.weight.tolist() == list(SIZES)


def test_sets_in_counts_steps():
    assert sets_in(NEED, 12) == 9 and sets_in(NEED, 3) == 3
    assert np.asarray(sets_in(NEED, np.array(SIZES))).tolist() == [9, 3, 3, 3, 9, 6, 3]


def test_tasks_without_end_have_no_epochs():
    with pytest.raises(ConfigError, match="local_epochs needs tasks with finite data"):
        draw(jax.random.key(0), NEED, sine())
