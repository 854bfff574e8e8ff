"""A device's block of data has what its tasks need, and nothing of others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.tasks import from_arrays, from_rows
from moml.tasks.parts import block_of

N = 10
SIZES = np.array([4, 1, 6, 3, 5, 2, 6, 4, 3, 5])


def in_arrays():
    x = np.arange(N * 6.0).reshape(N, 6)
    return from_arrays(x[..., None], -x, SIZES)


def in_rows():
    """Neighbours share a row; nobody owns the last ones."""
    ends = np.cumsum(SIZES - 1)
    rows = [np.arange(end - size + 1, end + 1) for size, end in zip(SIZES, ends, strict=True)]
    return from_rows(np.arange(50.0)[:, None], -np.arange(50.0), rows)


@pytest.mark.parametrize("make", [in_arrays, in_rows])
@pytest.mark.parametrize("devices", [3, 8])
def test_blocks_give_the_same_samples(make, devices):
    tasks, block = make(), block_of(N, devices)
    cuts = [tasks.cut(tasks.data, devices, d) for d in range(devices)]
    shapes = [[leaf.shape for leaf in jax.tree.leaves(cut)] for cut in cuts]
    assert all(shape == shapes[0] for shape in shapes)
    held = jax.tree.map(lambda *leaves: jnp.stack(leaves), *cuts)
    ids = jnp.arange(N, dtype=jnp.int32)
    drawn = jax.jit(tasks.draw, static_argnums=2)(jax.random.key(0), ids, 5)

    @jax.jit
    @jax.vmap
    def got(i, samples):
        mine = jax.tree.map(lambda leaf: leaf[i // block], held)
        return tasks.fetch_from(mine, i % block, samples)

    for here, whole in zip(got(ids, drawn)[:2], jax.jit(tasks.fetch)(ids, drawn)[:2], strict=True):
        np.testing.assert_array_equal(here, whole)


@pytest.mark.parametrize("make", [in_arrays, in_rows])
def test_blocks_hold_nothing_of_others(make):
    tasks = make()
    for d in range(3):
        x = np.asarray(tasks.cut(tasks.data, 3, d)[0]).ravel()
        own = tasks.full(jnp.arange(d * 4, min(d * 4 + 4, N), dtype=jnp.int32)).x
        assert set(x) <= {0.0, *np.asarray(own).ravel()}
