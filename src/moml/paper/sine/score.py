"""What every sine method is trained on and tested by: the network, the loss, the scores."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from moml.algorithms.parts.adapt import gradient_steps
from moml.models import mlp, mse
from moml.paper.sine import released
from moml.tasks import sine, unseen_sine
from moml.training.evaluate import errors_on
from moml.types import Batch, Hyper

SHOTS, STEPS, UNSEEN, QUERIES = 10, 10, 500, 100
NET = mlp(1, 40, 40, 1)
LOSS = mse(NET.predict)
TEST = gradient_steps(LOSS, STEPS)  # how every method is tested: ten steps of 0.01
TESTED_WITH = Hyper(eta=1.0, alpha=0.01)


@cache
def objective_of() -> Any:
    """F at the training tasks, from 100 inner and 100 other points a task, one number a member."""
    one = errors_on(LOSS, gradient_steps(LOSS), sine(), jax.random.key(1), shots=100, queries=100)
    return jax.jit(jax.vmap(lambda meta: jnp.mean(one(meta, TESTED_WITH))))


@cache
def unseen_error(seed: int) -> Any:
    """Mean error over unseen tasks of every member; `seed` picks the tasks."""
    tasks = unseen_sine(jax.random.key(seed), UNSEEN)
    key = jax.random.key(seed + 1)
    one = errors_on(LOSS, TEST, tasks, key, shots=SHOTS, queries=QUERIES)
    return jax.jit(jax.vmap(lambda meta: jnp.mean(one(meta, TESTED_WITH))))


@cache
def error_on_five_waves() -> Any:
    """Mean error over the released code's five waves, of every member."""
    support, scored = released.five_waves()

    def wave(meta: Any, few: Any, many: Any) -> Any:
        return LOSS(TEST.merge(meta, TEST.apply(meta, few, TESTED_WITH)), many)

    each = jax.vmap(wave, (None, 0, 0))
    return jax.jit(jax.vmap(lambda meta: jnp.mean(each(meta, support, scored))))


# Seeds of the tasks that step sizes are chosen on, and of those of the test. The latter was changed
# to one that nobody had looked at when the rule for beta, and then the method, were settled.
VALIDATION, FINAL = 1000, 8128


@cache
def example_waves() -> tuple[Batch, Batch]:
    """Five unseen tasks to look at: the samples adapted on, and the waves."""
    tasks, ids = unseen_sine(jax.random.key(4), 5), jnp.arange(5, dtype=jnp.int32)
    few, many = (tasks.draw(jax.random.key(i), ids, size) for i, size in ((6, SHOTS), (5, 300)))
    order = jnp.argsort(many.x[:, :, 0], axis=1)[..., None]
    return few, jax.tree.map(lambda v: jnp.take_along_axis(v, order, axis=1), many)
