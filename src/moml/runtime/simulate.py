"""One device: a stretch of training is one compiled program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from moml.algorithms.schedule import Schedule, constant
from moml.tasks.sampler import draw, fetch
from moml.types import Algorithm, Hyper, Info, Key, Need, Task, Tasks, Visit

Stretch = Callable[[Any, Key, Int[Array, ""] | int, Hyper, int], tuple[Any, Info]]


def stretch(algorithm: Algorithm, tasks: Tasks, schedule: Schedule = constant) -> Stretch:
    """`length` steps from step `start`, as one scan: (state, key, start, hyper, length) -> state.

    What a step draws depends on the key and the number of the step alone. All steps' numbers are
    drawn ahead, side by side; drawn inside the scan they would cost many times the step.
    """

    def run(
        state: Any, key: Key, start: Int[Array, ""] | int, hyper: Hyper, length: int
    ) -> tuple[Any, Info]:
        steps = jnp.asarray(start, jnp.int32) + jnp.arange(length, dtype=jnp.int32)
        keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(steps)
        visits = jax.vmap(lambda key: draw(key, algorithm.needs, tasks))(keys)

        def step(state: Any, at: Any) -> tuple[Any, Info]:
            t, visit = at
            now = schedule(hyper, t * algorithm.iterations)
            return algorithm.step(state, fetch(visit, tasks), now)

        return jax.lax.scan(step, state, (steps, visits))

    return run


def compiled(run: Stretch, *, members: bool = False) -> Any:
    """The program of a stretch; with `members`, of many at once that differ in key and hyper.

    The state given is consumed: memories are updated in place.
    """
    if members:
        run = jax.vmap(run, in_axes=(0, 0, None, 0, None))
    return jax.jit(run, static_argnums=4, donate_argnums=0)


def fill(write: Any, tasks: Tasks, n: int, k: int, *, chunk: int = 256) -> Any:
    """Eager filling: a pass over all n tasks that writes every memory, (state, key, hyper)."""

    def run(state: Any, key: Key, hyper: Hyper) -> Any:
        def write_some(state: Any, ids: Int[Array, " tasks"]) -> tuple[Any, None]:
            samples = tasks.fetch(ids, tasks.draw(jax.random.fold_in(key, ids[0]), ids, k))
            return write(state, Visit(ids, Task(support=samples)), hyper), None

        ids = jnp.arange(n, dtype=jnp.int32)
        whole = n - n % chunk
        if whole:
            state, _ = jax.lax.scan(write_some, state, ids[:whole].reshape(-1, chunk))
        return write_some(state, ids[whole:])[0] if whole < n else state

    return run


def samples_per_step(needs: Any) -> int:
    """Every sample that a step draws, S2 = S1 once."""
    total = 0
    for need in jax.tree.leaves(needs, is_leaf=lambda need: isinstance(need, Need)):
        visit = (need.support + need.query + need.hessian) * (need.visits or 1) + need.restart
        total += need.tasks * visit * (need.times or 1)
    return total


def steps_that_fit(algorithm: Algorithm, tasks: Tasks, budget: int = 1 << 26) -> int:
    """How many steps may be drawn ahead within `budget` bytes: at least 1, at most 1000."""
    shapes = jax.eval_shape(lambda key: draw(key, algorithm.needs, tasks), jax.random.key(0))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    return max(1, min(1000, budget // max(size, 1)))
