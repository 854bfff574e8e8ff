"""Memories as bfloat16: half the bytes, and right on average where the nearest stands still."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.algorithms.parts.memory import debiased_ema, ema, parted
from moml.algorithms.parts.packed import mixed, packed, rounded, widened
from moml.config.config import check
from moml.config.starts import STARTS
from moml.errors import ConfigError
from moml.types import Hyper

F = jnp.float32
MEMORIES = {"v1": lambda: ema(50), "v2": lambda: debiased_ema(50, 0.1)}


def hyper(beta):
    return Hyper(eta=F(0.1), beta=F(beta), alpha=F(0.01))


def visited(memory, store, ids, w, v, beta):
    """One step that visits some tasks, all of which adapt to v."""
    store = memory.tick(store, w, hyper(beta))
    mix = jax.vmap(lambda row: memory.mix(row, w, v, hyper(beta)))
    return memory.write(store, ids, mix(memory.read(store, ids)))


def test_bits_that_bfloat16_has_are_kept_and_the_others_are_right_on_average():
    chance = np.random.default_rng(0)
    x = jnp.asarray(chance.standard_normal(64), F)
    exact = x.astype(jnp.bfloat16).astype(F)
    bits = rounded(exact, jnp.full(64, 2**32 - 1, jnp.uint32))
    np.testing.assert_array_equal(widened(bits), exact)
    many = mixed(jnp.arange(64 * 4000, dtype=jnp.uint32)).reshape(4000, 64)
    y = np.asarray(widened(rounded(jnp.broadcast_to(x, (4000, 64)), many)), float)
    gap = 2.0 ** (np.floor(np.log2(np.abs(x))) - 7)  # between neighbours in bfloat16
    assert (np.abs(y - np.asarray(x)) < gap).all()
    assert np.abs((y.mean(axis=0) - np.asarray(x)) / gap).max() < 5 * 0.5 / np.sqrt(4000)
    low = np.array([0x7F800001, 0xFF80FFFF], np.uint32).view(np.float32)  # NaN by low bits alone
    odd = jnp.asarray([np.inf, -np.inf, np.nan, 0.0, *low], F)
    assert np.isnan(odd[-2:]).all()
    kept = widened(rounded(odd, jnp.full(6, 2**32 - 1, jnp.uint32)))
    np.testing.assert_array_equal(kept, odd)


@pytest.mark.parametrize("name", MEMORIES)
def test_small_updates_arrive_where_rounding_to_the_nearest_stands_still(name):
    memory, ids = MEMORIES[name](), jnp.arange(5, dtype=jnp.int32) * 7
    w, v = {"a": jnp.zeros(40, F), "b": jnp.zeros((2, 20), F)}, {"a": jnp.ones(40, F)}
    v = v | {"b": jnp.full((2, 20), 0.7, F)}
    beta = 0.001 if name == "v1" else 0.0001  # v2 moves by beta over the probability of a visit

    def end(memory, after):
        def step(store, _):
            return after(visited(memory, store, ids, w, v, beta)), None

        near = jax.tree.map(lambda x: 0.9 * x, v)
        store = memory.init(w)
        rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (5, *x.shape)), near)
        store = after(memory.write(store, ids, rows))
        return memory.recall(jax.lax.scan(step, store, length=1000)[0], ids)[0]

    nearest = lambda x: x.astype(jnp.bfloat16).astype(F)
    wide = end(memory, lambda store: store)
    near = end(memory, lambda store: _changed(store, nearest))
    mine = end(packed(memory), lambda store: store)
    for key, x in v.items():
        start = 0.9 * np.broadcast_to(x, wide[key].shape)
        moved, off = np.asarray(wide[key] - start), np.asarray(mine[key] - wide[key])
        assert moved.min() > 0.03
        assert np.abs(near[key] - start).max() < 0.005  # as it began
        assert np.abs(off).mean() < 0.4 * moved.min()
        assert np.abs(off.mean()) < 0.1 * moved.min()


def _changed(store, how):
    part = "u" if hasattr(store, "u") else "offset"
    return store._replace(**{part: jax.tree.map(how, getattr(store, part))})


@pytest.mark.parametrize("name", MEMORIES)
def test_half_the_bytes_and_what_was_not_visited_stays(name):
    memory = packed(MEMORIES[name]())
    w = {"a": jnp.ones(300, F)}
    store = memory.init(w)
    (numbers, _), (wide, _) = parted(store)[1], parted(MEMORIES[name]().init(w))[1]
    assert 2 * numbers["a"].nbytes == wide["a"].nbytes
    v = {"a": jnp.linspace(-1, 1, 300, dtype=F)}
    first = visited(memory, store, jnp.asarray([3, 8], jnp.int32), w, v, 0.5)
    second = visited(memory, first, jnp.asarray([8, 1], jnp.int32), w, v, 0.5)
    both = [np.asarray(parted(s)[1][0]["a"]) for s in (first, second)]
    assert both[0][[3, 8]].any(axis=1).all() and not np.delete(both[0], [3, 8], 0).any()
    changed = (both[0] != both[1]).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [1, 8]


def test_the_same_visits_give_the_same_bits_in_any_row_and_another_count_others():
    memory, w = packed(ema(4)), jnp.zeros(500, F)
    v = jnp.linspace(0, 1, 500, dtype=F)
    here, there = jnp.asarray([0, 2], jnp.int32), jnp.asarray([3, 1], jnp.int32)
    one = visited(memory, memory.init(w), here, w, v, 0.3)
    two = visited(memory, memory.init(w), there, w, v, 0.3)
    np.testing.assert_array_equal(one.u[here], two.u[there])
    later = memory.init(w)._replace(visits=jnp.full(4, 5, jnp.int32))
    other = memory.write(later, here, jnp.stack([v, v]))
    differ = np.asarray(one.u[0] != other.u[0]).mean()
    assert 0.2 < differ < 0.8


OPTIONS = {
    "moml": {"shots": 5},
    "moml-v2": {"two_batches": True},
    "localmoml": {"carried": True, "dropout": 0.3},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_training_stays_near_float32(name):
    net = moml.mlp(1, 8, 1)
    with jax.enable_x64(False):
        w = net.init(jax.random.key(0))
        fit = lambda dtype: moml.fit(
            name, moml.mse(net.predict), w, moml.sine(), iterations=60, beta=0.3, k=2,
            memory_dtype=dtype, **OPTIONS[name],
        )  # fmt: skip
        half, full = fit("bfloat16"), fit("float32")
        kinds = lambda of: {str(x.dtype) for x in jax.tree.leaves(parted(of.state.memory)[1][0])}
        assert kinds(half) == {"uint16"} and kinds(full) == {"float32"}
        assert 0 < np.abs(half.history - full.history).max() < 0.05 * full.history.max()


def test_refused():
    with pytest.raises(ConfigError, match=r"memory_dtype must be one of float32, .*; got 'float8'"):
        check(_sine(memory_dtype="float8"))
    with pytest.raises(ConfigError, match="memory_dtype must be float32 where direct is true"):
        check(_sine(method="moml-v2", direct=True, memory_dtype="bfloat16"))
    with pytest.raises(ConfigError, match="maml has no option 'memory_dtype'"):
        check(_sine(method="maml", memory_dtype="bfloat16"))
    with pytest.raises(ConfigError, match="memory_dtype must be float32 where carried is false"):
        check(_sine(method="localmoml", memory_dtype="bfloat16"))
    with pytest.raises(ConfigError, match="are of float32 parameters, not float64"):
        packed(ema(3)).init(jnp.zeros(2, jnp.float64))


def _sine(**changes):
    return replace(STARTS["sine"], **changes)
