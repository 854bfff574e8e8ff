import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.errors import DataError
from moml.tasks import from_groups
from moml.tasks.sampler import draw, fetch
from moml.types import SampleSpec

SHOTS, QUERIES = 4, 6
SIZES = [1, 2, 3, 7, 40]


def made(ordered=False, weights=None):
    """Every row's target is its number, its input the number of its group."""
    rows = np.random.default_rng(0).permutation(sum(SIZES))
    groups = np.split(rows, np.cumsum(SIZES)[:-1])
    x = np.zeros((len(rows), 1))
    for i, mine in enumerate(groups):
        x[mine] = i
    return groups, from_groups(
        x, np.arange(len(rows)) / 1.0, groups, shots=SHOTS, ordered=ordered, weights=weights
    )


def visits(tasks, steps=400):
    """What many steps draw of all groups: places [steps, groups, SHOTS + QUERIES]."""
    keys = jax.random.split(jax.random.key(0), steps)
    ids = jnp.arange(len(SIZES), dtype=jnp.int32)
    return np.asarray(jax.vmap(lambda key: tasks.draw(key, ids, SHOTS + QUERIES))(keys))


@pytest.mark.parametrize("ordered", [True, False])
def test_a_visit_never_asks_for_what_it_knows(ordered):
    drawn = visits(made(ordered)[1])
    for i, n in enumerate(SIZES):
        for row in drawn[:, i]:
            real = row[row >= 0]
            known, asked = row[:SHOTS][row[:SHOTS] >= 0], row[SHOTS:][row[SHOTS:] >= 0]
            assert len(set(real)) == len(real) and real.max() < n
            assert len(asked) == min(QUERIES, n - len(known))
            if ordered:
                assert known.tolist() == list(range(len(known)))  # the first, in their order
                assert (asked >= len(known)).all()


@pytest.mark.parametrize("ordered", [True, False])
def test_every_number_of_known_rows_comes_as_often(ordered):
    drawn = visits(made(ordered)[1], steps=2000)
    for i, n in enumerate(SIZES):
        known = (drawn[:, i, :SHOTS] >= 0).sum(axis=1)
        most = min(SHOTS, n - 1)
        if most == 0:
            assert (known == 0).all()
            continue
        counts = np.bincount(known, minlength=most + 1)
        assert counts[0] == 0 and len(counts) == most + 1
        assert np.abs(counts[1:] * most / 2000 - 1).max() < 0.2


def test_no_row_is_left_out():
    for ordered in (True, False):
        drawn = visits(made(ordered)[1])
        for i, n in enumerate(SIZES):
            assert set(drawn[:, i].ravel()) - {-1} == set(range(n))
            later = set(drawn[:, i, SHOTS:].ravel()) - {-1}
            assert len(later) >= n - ordered  # a group's first row is always known, if any is


def test_rows_come_from_their_group_and_padding_is_masked():
    groups, tasks = made(weights=np.arange(sum(SIZES)) + 1.0)
    need = SampleSpec(len(SIZES), support=SHOTS, query=QUERIES)
    visit = fetch(draw(jax.random.key(3), need, tasks), tasks)
    for batch in (visit.task.support, visit.task.query):
        for i, x, y, mask in zip(visit.ids, batch.x, batch.y, batch.mask, strict=True):
            real = np.asarray(mask) > 0
            assert set(np.asarray(y)[real].astype(int)) <= set(groups[int(i)].tolist())
            np.testing.assert_array_equal(np.asarray(x)[real, 0], int(i))
            np.testing.assert_array_equal(np.asarray(mask)[real], np.asarray(y)[real] + 1)


def test_groups_that_cannot_be():
    x, y = np.zeros((4, 2)), np.zeros(4)
    with pytest.raises(DataError, match="group 1 has no samples"):
        from_groups(x, y, [[0, 1], []], shots=2)
    with pytest.raises(DataError, match="rows of group 0 must be whole numbers from 0 to 3"):
        from_groups(x, y, [[0, 4]], shots=2)
    with pytest.raises(DataError, match="group 0 has a row twice"):
        from_groups(x, y, [[1, 1]], shots=2)
    with pytest.raises(DataError, match="both must start with the same"):
        from_groups(x, y[:3], [[0]], shots=2)
