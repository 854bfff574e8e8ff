"""The theory's quantities against numpy, on tasks with finite data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.parts.memory import debiased_ema, ema
from moml.algorithms.single.diagnostics import diagnose, samples_of, tracking_error
from moml.algorithms.single.engine import single_node
from moml.errors import ConfigError
from moml.tasks import sine
from moml.types import SampleSpec
from tests.algorithms.common import (
    HYPER,
    B,
    K,
    N,
    at,
    data,
    flat,
    loss,
    quick_jit,
    sigmoid_world,
    visits_of,
)
from tests.reference.adaptation import gradient_steps as slow_steps
from tests.reference.problem import SIGMOID

SIZES = (12, 5, 9, 12, 1, 7, 3)
families = pytest.mark.parametrize("sizes", [None, SIZES], ids=["equal", "ragged"])
chunks = pytest.mark.parametrize("chunk", [3, 256])  # of seven tasks 3 leaves one over
A = gradient_steps(loss)
SLOW = slow_steps(SIGMOID, HYPER.alpha)


def rows_of(sizes: Any) -> list[Any]:
    """All the data of each task, without padding."""
    x, y = data()
    return [(x[i, :m], y[i, :m]) for i, m in enumerate(sizes or (12,) * N)]


@families
@chunks
def test_objective_and_gap(sizes, chunk):
    world, w = sigmoid_world(sizes=sizes), flat(sigmoid_world().params)
    measure = diagnose(loss, A, N, samples_of(world.tasks), chunk=chunk)
    got = quick_jit(measure)(world.params, HYPER)
    v = [SLOW.apply(w, d) for d in rows_of(sizes)]
    value = np.mean([SIGMOID.value(v, d) for v, d in zip(v, rows_of(sizes), strict=True)])
    grads = [SLOW.delta(w, v, d, d) for v, d in zip(v, rows_of(sizes), strict=True)]
    gap = np.sum(np.mean(grads, axis=0) ** 2)  # |grad F|^2
    np.testing.assert_allclose([got.objective, got.gap], [value, gap], rtol=1e-12)


def after_two_steps(kept: Any) -> tuple[Any, Any, Any]:
    """The memory after a step, the meta-model before it, the ids that it visited."""
    world = sigmoid_world()
    algorithm = single_node(loss, A, kept, optax.identity(), SampleSpec(B, support=K, query=K))
    visits = visits_of(algorithm.needs, world.tasks, 2)
    state, step = algorithm.init(world.params, HYPER), quick_jit(algorithm.step)
    for t in range(2):
        before = state.meta
        state, _ = step(state, jax.tree.map(jnp.asarray, at(visits, t)), HYPER)
    return state.memory, before, visits.ids


@families
@chunks
@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_tracking_error_in_both_readings(sizes, chunk, kind):
    world = sigmoid_world(sizes=sizes)
    kept = ema(N) if kind == "v1" else debiased_ema(N, B / N)
    store, before, visited = after_two_steps(kept)
    u, w = flat(kept.recall(store, jnp.arange(N))[0], lead=1), flat(before)
    apart = [np.sum((u[i] - SLOW.apply(w, d)) ** 2) for i, d in enumerate(rows_of(sizes))]
    error = quick_jit(tracking_error(A, kept, samples_of(world.tasks), chunk=chunk))
    ids = visited[1]
    want = np.mean([apart[i] for i in ids])  # the step's own batch
    np.testing.assert_allclose(error(store, before, ids, HYPER), want, rtol=1e-12)
    remembered = set(visited.ravel().tolist()) if kind == "v1" else set(range(N))
    assert kind == "v2" or len(remembered) < N  # some task was never visited
    want = np.mean([apart[i] for i in remembered])  # all tasks of which there is a memory
    np.testing.assert_allclose(error(store, before, jnp.arange(N), HYPER), want, rtol=1e-12)


def test_endless_samples_are_drawn_apart_and_alike_each_time():
    tasks = sine()
    samples = samples_of(tasks, jax.random.key(0), 30)
    inner, outer = samples(jnp.array(2))
    assert inner.x.shape == (30, 1)
    assert not np.intersect1d(inner.x, outer.x).size
    again = samples(jnp.array(2))
    jax.tree.map(np.testing.assert_array_equal, (inner, outer), again)


def test_endless_samples_need_a_key():
    with pytest.raises(ConfigError, match="give a key"):
        samples_of(sine())
