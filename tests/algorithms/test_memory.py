"""What is kept of a task, and for how long it can be trusted."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.parts import memory
from moml.algorithms.parts.adapt import gradient_steps, learned_steps, named
from moml.errors import ConfigError
from moml.types import Hyper
from tests.algorithms.common import HYPER, N, flat, loss, quick_jit, sigmoid_world

ONE = jnp.array([1])
P = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
W = {"a": jnp.array([5.0, 6.0]), "b": jnp.array(7.0)}
V = {"a": jnp.array([-1.0, 0.5]), "b": jnp.array(0.0)}
rows = lambda p: jax.tree.map(lambda x: x[None], p)


def visit(kept: Any, store: Any, ids: Any, w: Any, v: Any, hyper: Hyper) -> Any:
    """What a step does to the memory of one task that it visits."""
    store = kept.tick(store, w, hyper)
    one = jax.tree.map(lambda x: x[0], kept.read(store, ids))
    return kept.write(store, ids, rows(kept.mix(one, w, v, hyper)))


def recalled(kept: Any, store: Any, i: int) -> np.ndarray:
    return flat(kept.recall(store, jnp.array([i]))[0])


def test_first_touch_takes_the_point_itself():
    kept = memory.ema(3)
    store = kept.init(P)
    assert not kept.recall(store, jnp.arange(3))[1].any()
    store = visit(kept, store, ONE, W, V, HYPER)
    np.testing.assert_array_equal(recalled(kept, store, 1), flat(V))
    assert kept.recall(store, jnp.arange(3))[1].tolist() == [False, True, False]
    store = visit(kept, store, ONE, W, W, HYPER)  # from then on an average
    want = (1 - HYPER.beta) * flat(V) + HYPER.beta * flat(W)
    np.testing.assert_allclose(recalled(kept, store, 1), want, rtol=1e-15)


def test_eager_fill_counts_as_a_visit():
    kept = memory.ema(3)
    store = kept.write(kept.init(P), ONE, rows(P))
    store = visit(kept, store, ONE, W, V, HYPER)
    want = (1 - HYPER.beta) * flat(P) + HYPER.beta * flat(V)
    np.testing.assert_allclose(recalled(kept, store, 1), want, rtol=1e-15)


@pytest.mark.parametrize("kind", [memory.debiased_ema, memory.debiased_ema_direct])
def test_debiased_memories_start_at_the_first_model(kind):
    kept = kind(3, 1 / 3)
    store = kept.init(P)
    u, known = kept.recall(store, jnp.arange(3))
    assert known.all()
    np.testing.assert_array_equal(flat(u, lead=1), np.stack([flat(P)] * 3))
    store = visit(kept, store, ONE, W, V, HYPER)
    idle = (1 - HYPER.beta) * flat(P) + HYPER.beta * flat(W)
    sampled = idle + HYPER.beta * 3 * (flat(V) - flat(W))
    np.testing.assert_allclose(recalled(kept, store, 0), idle, rtol=1e-14)
    np.testing.assert_allclose(recalled(kept, store, 1), sampled, rtol=1e-14)


def test_no_memory_remembers_nothing():
    kept = memory.none()
    store = kept.init(P)
    assert jax.tree.leaves(store) == []
    assert kept.mix(kept.read(store, ONE), W, V, HYPER) is V
    with pytest.raises(ConfigError, match="keeps no memory"):
        kept.recall(store, jnp.arange(3))


STEPS, BETA = 40_000, 0.1
GAPS = [1, 7, 20, 60]  # how long before the end each task was touched


def decays_rebuilt() -> np.ndarray:
    """What the lazy store makes of an offset of 1, touched some steps before the last."""
    kept = memory.debiased_ema(len(GAPS), 1.0)
    zero, hyper = jnp.zeros(1, jnp.float32), Hyper(eta=0.1, beta=jnp.float32(BETA))

    def step(store: Any, t: Any) -> Any:
        touched = kept.write(store, jnp.arange(len(GAPS)), jnp.ones((len(GAPS), 1), jnp.float32))
        due = (STEPS - jnp.asarray(GAPS)) == t
        pick = lambda new, old: jnp.where(jnp.expand_dims(due, range(1, new.ndim)), new, old)
        store = store._replace(
            offset=pick(touched.offset, store.offset),
            touched=jax.tree.map(pick, touched.touched, store.touched),
        )
        return kept.tick(store, zero, hyper), None

    store, _ = quick_jit(lambda s: jax.lax.scan(step, s, jnp.arange(STEPS)))(kept.init(zero))
    u, _ = kept.recall(store, jnp.arange(len(GAPS)))
    assert u.dtype == jnp.float32
    return np.asarray(u[:, 0], np.float64)


def decays_by_one_float() -> np.ndarray:
    """The same from a plain running sum of log(1 - beta) in float32."""
    logs = np.full(STEPS, np.log(np.float32(1) - np.float32(BETA)), np.float32)
    clock = np.concatenate([[np.float32(0)], np.cumsum(logs, dtype=np.float32)])
    return np.exp(np.float64(clock[-1]) - clock[STEPS - np.array(GAPS)].astype(np.float64))


def test_lazy_clock_stays_accurate_in_float32():
    want = (1 - np.float64(np.float32(BETA))) ** np.array(GAPS)
    error = lambda got: np.abs(got / want - 1).max()
    assert error(decays_rebuilt()) < 1e-6
    assert error(decays_by_one_float()) > 1e-4  # why the clock has two parts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [memory.debiased_ema, memory.debiased_ema_direct])
def test_beta_one_forgets_everything(dtype, kind):
    """Once, many times over, and with a visit in between."""
    kept, cast = kind(3, 1 / 3), lambda p: jax.tree.map(lambda x: x.astype(dtype), p)
    p, w, v = cast(P), cast(W), cast(V)
    all_of_it = Hyper(eta=0.1, beta=1.0)
    tick = quick_jit(lambda store, w, hyper: kept.tick(store, w, hyper))
    store = visit(kept, kept.init(p), ONE, w, v, HYPER)
    for _ in range(50):
        store = tick(store, p, all_of_it)
        np.testing.assert_array_equal(recalled(kept, store, 1), flat(p))
    store = visit(kept, store, ONE, w, v, all_of_it)
    np.testing.assert_array_equal(recalled(kept, store, 0), flat(w))
    want = flat(w) + 3 * (flat(v) - flat(w))
    np.testing.assert_allclose(recalled(kept, store, 1), want, rtol=10 * np.finfo(dtype).eps)
    store = tick(store, p, HYPER)  # and remembers again
    want = (1 - HYPER.beta) * want + HYPER.beta * flat(p)
    np.testing.assert_allclose(recalled(kept, store, 1), want, rtol=10 * np.finfo(dtype).eps)


MEMORIES = [memory.ema(N), memory.debiased_ema(N, 0.5), memory.debiased_ema_direct(N, 0.5)]


@pytest.mark.parametrize("kept", MEMORIES, ids=["v1", "v2 lazy", "v2 direct"])
@pytest.mark.parametrize("make", [gradient_steps, learned_steps])
def test_rows_hold_only_what_adapts(kept, make):
    A = make(loss, leaves=named("head"))
    personal = A.start(A.init(sigmoid_world().params, HYPER))
    assert personal["body"] is None
    store = kept.init(personal)
    u, _ = kept.recall(store, jnp.arange(N))
    assert u["body"] is None
    assert u["head"].shape == (N, 2)
    per_task = [x for x in jax.tree.leaves(store) if x.ndim > 1]
    assert [x.shape for x in per_task] == [(N, 2)]
