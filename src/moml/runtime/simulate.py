"""One device: a stretch of training is one compiled program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from moml.algorithms.parts.schedule import Schedule, constant
from moml.tasks.sampler import draw, fetch
from moml.types import Algorithm, Hyper, Info, Key, SampleSpec, Task, TaskBatch, Tasks

Stretch = Callable[[Any, Key, Int[Array, ""] | int, Hyper, int], tuple[Any, Info]]


Place = Callable[[Any, Int[Array, "..."]], Int[Array, "..."]]  # state, ids -> their rows


def drawn(
    algorithm: Algorithm, tasks: Tasks, key: Key, start: Int[Array, ""] | int, length: int
) -> tuple[Int[Array, " steps"], Any]:
    """The numbers of `length` steps from `start`, and what each of them draws (not fetched yet)."""
    steps = jnp.asarray(start, jnp.int32) + jnp.arange(length, dtype=jnp.int32)
    keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(steps)
    return steps, jax.vmap(lambda key: draw(key, algorithm.needs, tasks))(keys)


def stretch(
    algorithm: Algorithm,
    tasks: Tasks,
    schedule: Schedule = constant,
    place: Place = lambda state, ids: ids,
) -> Stretch:
    """`length` steps from step `start`, as one scan: (state, key, start, hyper, length) -> state.

    What a step draws depends on the key and the number of the step alone. All steps' numbers are
    drawn ahead, side by side; drawn inside the scan they would cost many times the step. `place`
    says which row of the store is a task's, where that is not its id.
    """

    def run(
        state: Any, key: Key, start: Int[Array, ""] | int, hyper: Hyper, length: int
    ) -> tuple[Any, Info]:
        steps, visits = drawn(algorithm, tasks, key, start, length)
        places = [place(state, ids) for ids in ids_of(visits)]

        def step(state: Any, at: Any) -> tuple[Any, Info]:
            t, visit, places = at
            now = schedule(hyper, t * algorithm.iterations)
            return algorithm.step(state, with_ids(fetch(visit, tasks), places), now)

        return jax.lax.scan(step, state, (steps, visits, places))

    return run


def _is_visit(part: Any) -> bool:
    return isinstance(part, TaskBatch)


def ids_of(visits: Any) -> list[Int[Array, "..."]]:
    """The ids of a tree of visits, one array a visit."""
    return [visit.ids for visit in jax.tree.leaves(visits, is_leaf=_is_visit)]


def with_ids(visits: Any, ids: list[Int[Array, "..."]]) -> Any:
    """The same tree with other ids."""
    leaves, tree = jax.tree.flatten(visits, is_leaf=_is_visit)
    moved = [visit._replace(ids=new) for visit, new in zip(leaves, ids, strict=True)]
    return jax.tree.unflatten(tree, moved)


def compiled(run: Stretch, *, members: bool = False) -> Any:
    """The program of a stretch; with `members`, of many at once that differ in key and hyper.

    The state given is consumed: memories are updated in place.
    """
    if members:
        run = jax.vmap(run, in_axes=(0, 0, None, 0, None))
    return jax.jit(run, static_argnums=4, donate_argnums=0)


FILLED = 256  # tasks that are filled at once; what they draw depends on it


def fill_some(write: Any, tasks: Tasks, k: int, place: Place = lambda state, ids: ids) -> Any:
    """Eager filling of the memories of some tasks, (state, ids, key, hyper)."""

    def run(state: Any, ids: Int[Array, " tasks"], key: Key, hyper: Hyper) -> Any:
        samples = tasks.fetch(ids, tasks.draw(jax.random.fold_in(key, ids[0]), ids, k))
        return write(state, TaskBatch(place(state, ids), Task(support=samples)), hyper)

    return run


def fill(write: Any, tasks: Tasks, n: int, k: int, *, chunk: int = FILLED) -> Any:
    """Eager filling: a pass over all n tasks that writes every memory, (state, key, hyper)."""
    some = fill_some(write, tasks, k)

    def run(state: Any, key: Key, hyper: Hyper) -> Any:
        def write_some(state: Any, ids: Int[Array, " tasks"]) -> tuple[Any, None]:
            return some(state, ids, key, hyper), None

        ids = jnp.arange(n, dtype=jnp.int32)
        whole = n - n % chunk
        if whole:
            state, _ = jax.lax.scan(write_some, state, ids[:whole].reshape(-1, chunk))
        return write_some(state, ids[whole:])[0] if whole < n else state

    return run


def samples_per_step(needs: Any) -> int:
    """Every sample that a step draws, S2 = S1 once."""
    total = 0
    for need in jax.tree.leaves(needs, is_leaf=lambda need: isinstance(need, SampleSpec)):
        visit = (need.support + need.query + need.hessian) * (need.visits or 1) + need.restart
        total += need.tasks * visit * (need.times or 1)
    return total


def steps_that_fit(algorithm: Algorithm, tasks: Tasks, budget: int = 1 << 26) -> int:
    """How many steps may be drawn ahead within `budget` bytes: at least 1, at most 1000."""
    shapes = jax.eval_shape(lambda key: draw(key, algorithm.needs, tasks), jax.random.key(0))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    return max(1, min(1000, budget // max(size, 1)))
