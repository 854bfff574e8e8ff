"""One device: a stretch of training is one compiled program."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.stages import Wrapped
from jaxtyping import Array, Int, PyTree

from moml.algorithms.parts.schedule import Schedule, constant
from moml.tasks.sampler import draw, fetch
from moml.types import Algorithm, Hyper, Info, Key, SampleSpec, State, Task, TaskBatch, Tasks

Step = Int[Array, ""] | int  # the number of a step
Stretch = Callable[[State, Key, Step, Hyper, int], tuple[State, Info]]
Place = Callable[[State, Int[Array, "..."]], Int[Array, "..."]]  # state, ids -> their rows
Ids = Int[Array, " tasks"]
Write = Callable[..., State]  # state, visit, hyper


def drawn(
    algorithm: Algorithm, tasks: Tasks, key: Key, start: Step, length: int
) -> tuple[Int[Array, " steps"], PyTree]:
    """Return the numbers of `length` steps from `start`, and the draws of each (not fetched)."""
    steps = jnp.asarray(start, jnp.int32) + jnp.arange(length, dtype=jnp.int32)
    keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(steps)
    return steps, jax.vmap(lambda key: draw(key, algorithm.needs, tasks))(keys)


def stretch(
    algorithm: Algorithm,
    tasks: Tasks,
    schedule: Schedule = constant,
    place: Place = lambda state, ids: ids,
) -> Stretch:
    """Return (state, key, start, hyper, length) -> state: `length` steps from `start`, one scan.

    The draws of a step depend on the key and the number of the step alone. Those of all steps are
    made before the scan, side by side; inside it they would cost many times the step. `place`
    gives the row of a task in the store, where that is not its id.
    """

    def run(state: State, key: Key, start: Step, hyper: Hyper, length: int) -> tuple[State, Info]:
        steps, visits = drawn(algorithm, tasks, key, start, length)
        places = [place(state, ids) for ids in ids_of(visits)]

        def step(state: State, at: PyTree) -> tuple[State, Info]:
            t, visit, places = at
            now = schedule(hyper, t * algorithm.iterations)
            return algorithm.step(state, with_ids(fetch(visit, tasks), places), now)

        return jax.lax.scan(step, state, (steps, visits, places))

    return run


def _is_visit(part: object) -> bool:
    return isinstance(part, TaskBatch)


def ids_of(visits: PyTree) -> list[Int[Array, "..."]]:
    """Return the ids of a tree of visits, one array a visit."""
    return [visit.ids for visit in jax.tree.leaves(visits, is_leaf=_is_visit)]


def with_ids(visits: PyTree, ids: list[Int[Array, "..."]]) -> PyTree:
    """Return the same tree with other ids."""
    leaves, tree = jax.tree.flatten(visits, is_leaf=_is_visit)
    moved = [visit._replace(ids=new) for visit, new in zip(leaves, ids, strict=True)]
    return jax.tree.unflatten(tree, moved)


def compiled(run: Stretch, *, members: bool = False) -> Wrapped:
    """Return a jitted stretch; with `members`, of many at once that differ in key and hyper.

    The state is donated: memories are updated in place.
    """
    if members:
        run = jax.vmap(run, in_axes=(0, 0, None, 0, None))
    return jax.jit(run, static_argnums=4, donate_argnums=0)


FILLED = 256  # tasks that are filled at once; their draws depend on it


def fill_some(
    write: Write, tasks: Tasks, k: int, place: Place = lambda state, ids: ids
) -> Callable[[State, Ids, Key, Hyper], State]:
    """Return the eager filling of some tasks' memories: (state, ids, key, hyper) -> state."""

    def run(state: State, ids: Ids, key: Key, hyper: Hyper) -> State:
        samples = tasks.fetch(ids, tasks.draw(jax.random.fold_in(key, ids[0]), ids, k))
        return write(state, TaskBatch(place(state, ids), Task(support=samples)), hyper)

    return run


def fill(
    write: Write | None, tasks: Tasks, n: int, k: int, *, chunk: int = FILLED
) -> Callable[[State, Key, Hyper], State]:
    """Return the eager filling of all n tasks' memories: (state, key, hyper) -> state."""
    if write is None:
        raise TypeError("this method has no memories to fill")
    some = fill_some(write, tasks, k)

    def run(state: State, key: Key, hyper: Hyper) -> State:
        def write_some(state: State, ids: Ids) -> tuple[State, None]:
            return some(state, ids, key, hyper), None

        ids = jnp.arange(n, dtype=jnp.int32)
        whole = n - n % chunk
        if whole:
            state, _ = jax.lax.scan(write_some, state, ids[:whole].reshape(-1, chunk))
        return write_some(state, ids[whole:])[0] if whole < n else state

    return run


def samples_per_step(needs: PyTree) -> int:
    """Return how many samples a step draws, S2 = S1 once."""
    total = 0
    for need in jax.tree.leaves(needs, is_leaf=lambda need: isinstance(need, SampleSpec)):
        visit = (need.support + need.query + need.hessian) * (need.visits or 1) + need.restart
        total += need.tasks * visit * (need.times or 1)
    return total


def steps_that_fit(algorithm: Algorithm, tasks: Tasks, budget: int = 1 << 26) -> int:
    """Return how many steps may be drawn ahead within `budget` bytes, from 1 to 1000."""
    shapes = jax.eval_shape(lambda key: draw(key, algorithm.needs, tasks), jax.random.key(0))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    return max(1, min(1000, budget // max(size, 1)))
