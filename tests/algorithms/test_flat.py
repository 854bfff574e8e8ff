"""A table's training step: MAML by plain differentiation, of parameters in one vector."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.tabular.flat import flat_like, on_vectors, without_memory
from moml.methods import maml
from moml.runtime import simulate
from tests.algorithms.common import HYPER, B, K, N, T, flat, loss, sigmoid_world


@pytest.mark.parametrize("optimizer", [optax.sgd, optax.adam])
@pytest.mark.parametrize("vectors", [False, True])
def test_plain_differentiation_is_maml(optimizer, vectors):
    world, hyper = sigmoid_world(), jax.tree.map(jnp.asarray, HYPER)
    want = maml(loss, n=N, k=K, tasks_per_step=B, optimizer=optimizer).algorithm
    layout = flat_like(world.params)
    adapt = gradient_steps(loss, 1)
    adapt = on_vectors(adapt, layout) if vectors else adapt
    got = without_memory(loss, adapt, optimizer, want.needs)
    ends = []
    for algorithm in (want, got):
        state = algorithm.init(jax.tree.map(jnp.copy, world.params), hyper)  # it is consumed
        run = simulate.program(algorithm)
        state, info = run(state, world.tasks, jax.random.key(1), 0, hyper, T, T)
        ends.append((state.meta, info.loss, info.norm))
    meta = layout.tree(ends[1][0]) if vectors else ends[1][0]
    np.testing.assert_allclose(flat(meta), flat(ends[0][0]), rtol=1e-12)
    np.testing.assert_allclose(ends[1][1], ends[0][1], rtol=1e-12)
    np.testing.assert_allclose(ends[1][2], ends[0][2], rtol=1e-12)
    assert np.linalg.norm(flat(meta) - flat(world.params)) > 1e-2


def test_a_vector_and_back():
    tree = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([7.0])}
    layout = flat_like(tree, 20)
    vector = layout.ravel(tree)
    assert vector.shape == (32,) == (layout.size,)
    jax.tree.map(np.testing.assert_array_equal, layout.tree(vector), tree)
    two = layout.tree(np.stack([vector, 2 * vector]))
    np.testing.assert_array_equal(two["a"][1], 2 * tree["a"])
