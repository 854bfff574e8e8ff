"""What differentiation through several inner steps may store: their states, and no more."""

import jax
import jax.numpy as jnp
import pytest

import moml
from moml.algorithms.parts.personal import personal_step
from moml.types import Hyper, Task

NET = moml.mlp(20, 100, 100, 1)
LOSS = moml.mse(NET.predict)


def temporary_bytes(make, steps):
    adapt = make(LOSS, steps)
    step = personal_step(LOSS, adapt, moml.algorithms.parts.memory.none())
    samples = moml.Batch(jnp.zeros((50, 20)), jnp.zeros((50, 1)))
    hyper = jax.tree.map(jnp.asarray, Hyper(eta=0.1, alpha=0.01))
    meta = adapt.init(NET.init(jax.random.key(0)), hyper)
    delta = jax.jit(lambda meta: step(meta, (), Task(samples, samples), hyper).delta)
    return delta.lower(meta).compile().memory_analysis().temp_size_in_bytes


STEPS = [moml.parts.gradient_steps, moml.parts.learned_steps, moml.parts.layer_steps]


@pytest.mark.parametrize("make", STEPS)
def test_memory_grows_by_one_state_a_step(make):
    few, many = temporary_bytes(make, 10), temporary_bytes(make, 30)
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(NET.init(jax.random.key(0))))
    assert many - few == pytest.approx(20 * state, rel=0.1)
