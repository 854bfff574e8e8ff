"""What every sine method is trained on and tested by: the network, the loss, the scores."""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from moml.algorithms.parts.adapt import gradient_steps
from moml.models import mlp, mse
from moml.tasks import sine, unseen_sine
from moml.training.evaluate import on_query, scores_on
from moml.training.sweep import Sweep
from moml.types import Adapt, Batch, Hyper, Meta, Params, Tasks

SHOTS, STEPS, UNSEEN, QUERIES = 10, 10, 500, 100
NET = mlp(1, 40, 40, 1)
LOSS = mse(NET.predict)
TEST = gradient_steps(LOSS, STEPS)  # how every method is tested: ten steps of 0.01
TESTED_WITH = Hyper(eta=1.0, alpha=0.01)
# Seeds of the tasks that step sizes are chosen on, and of those of the test. The latter was changed
# to one that nobody had looked at when the rule for beta, and then the method, were settled.
VALIDATION, FINAL = 1000, 8128

Score = Callable[[Meta], Float[Array, " members"]]  # models of all members -> mean errors


def _mean_error(adapt: Adapt, tasks: Tasks, key: int, shots: int) -> Score:
    few = 16 if jax.default_backend() == "cpu" else 256  # of all members, as many as a cache holds
    each = scores_on(on_query(LOSS), adapt, shots=shots, queries=QUERIES, chunk=few)
    one = lambda meta, tasks, key: jnp.mean(each(meta, TESTED_WITH, tasks, key))
    program = jax.jit(jax.vmap(one, (0, None, None)))
    return lambda meta: program(meta, tasks, jax.random.key(key))


@cache
def objective_of() -> Score:
    """F at the training tasks, from 100 inner and 100 other points a task."""
    return _mean_error(gradient_steps(LOSS), sine(), 1, 100)


@cache
def unseen_error(seed: int) -> Score:
    """Mean error over unseen tasks; `seed` picks the tasks."""
    return _mean_error(TEST, unseen_sine(jax.random.key(seed), UNSEEN), seed + 1, SHOTS)


def adapted(meta: Meta, few: Batch) -> Params:
    """The parameters after the test's adaptation on a few samples of one task."""
    return TEST.merge(meta, TEST.apply(meta, few, TESTED_WITH))


def five_waves() -> tuple[Batch, Batch]:
    """The released test: five fixed waves, 10 points to adapt on that are among the 100 scored."""
    waves = [np.random.RandomState(i) for i in range(5)]
    drawn = np.array([(r.uniform(1, 5), r.uniform(np.pi / 5, np.pi)) for r in waves])
    x = np.random.RandomState(2021).uniform(-5, 5, 100)
    y = drawn[:, :1] * np.sin(drawn[:, 1:] + x)
    whole = Batch(*(jnp.asarray(part[..., None], float) for part in np.broadcast_arrays(x, y)))
    return Batch(whole.x[:, :10], whole.y[:, :10]), whole


@cache
def error_on_five_waves() -> Score:
    """Mean error over the released code's five waves."""
    support, scored = five_waves()
    wave = lambda meta, few, many: LOSS(adapted(meta, few), many)
    each = jax.vmap(wave, (None, 0, 0))
    return jax.jit(jax.vmap(lambda meta: jnp.mean(each(meta, support, scored))))


@cache
def example_waves(count: int = 5, points: int = 300) -> tuple[Batch, Batch]:
    """Unseen tasks to look at: the samples adapted on, and the waves."""

    @jax.jit
    def drawn(tasks: Tasks) -> tuple[Batch, Batch]:
        ids, sizes = jnp.arange(count, dtype=jnp.int32), ((6, SHOTS), (5, points))
        few, many = (tasks.draw(jax.random.key(i), ids, size) for i, size in sizes)
        order = jnp.argsort(many.x[:, :, 0], axis=1)[..., None]
        return few, jax.tree.map(lambda v: jnp.take_along_axis(v, order, axis=1), many)

    return drawn(unseen_sine(jax.random.key(4), count))


def fitted(run: Sweep, waves: tuple[Batch, Batch]) -> Float[np.ndarray, "tasks points"]:
    """What seed 0 predicts on waves after adapting to each."""
    first = jax.tree.map(lambda leaf: np.asarray(leaf)[0], run.meta)
    few, many = waves
    return np.asarray(_predicted(first, few, many.x))


_predicted = jax.jit(
    jax.vmap(lambda meta, few, x: NET.predict(adapted(meta, few), x)[:, 0], (None, 0, 0))
)
