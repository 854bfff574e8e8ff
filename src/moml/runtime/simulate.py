"""One device: a stretch of training is one compiled program."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from jaxtyping import Array, Int, PyTree

from moml.algorithms.parts.schedule import Schedule, constant
from moml.kept import kept
from moml.tasks.sampler import draw, fetch
from moml.types import Algorithm, Hyper, Info, Key, SampleSpec, State, Task, TaskBatch, Tasks

Step = Int[Array, ""] | int  # the number of a step
Stretch = Callable[[State, Tasks, Key, Step, Hyper, Step, int], tuple[State, Info]]
Place = Callable[[State, Int[Array, "..."]], Int[Array, "..."]]  # state, ids -> their rows
Ids = Int[Array, " tasks"]
Write = Callable[..., State]  # state, visit, hyper


def drawn(algorithm: Algorithm, tasks: Tasks, key: Key, steps: Int[Array, " steps"]) -> PyTree:
    """Return the draws of steps with these numbers, not fetched."""
    keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(steps)
    return jax.vmap(lambda key: draw(key, algorithm.needs, tasks))(keys)


def own_place(state: State, ids: Int[Array, "..."]) -> Int[Array, "..."]:
    """Return the rows of tasks in a store of all tasks: their ids."""
    return ids


def stretch(
    algorithm: Algorithm,
    schedule: Schedule = constant,
    place: Place = own_place,
    *,
    members: bool = False,
) -> Stretch:
    """Return (state, tasks, key, start, hyper, size, length) -> state, infos [length].

    These are `size` steps from `start`, at most `length`, which is static: one program serves a
    last stretch that is shorter. With `members` state, key and hyper have an axis of them, and so
    have infos, [length, members].

    The draws of a step depend on the key and the number of the step alone. Those of all steps are
    made before the loop, side by side; inside it they would cost many times the step. `place` gives
    the row of a task in the store, where that is not its id.
    """
    each = jax.vmap if members else lambda f, in_axes, out_axes: f

    def run(
        state: State, tasks: Tasks, key: Key, start: Step, hyper: Hyper, size: Step, length: int
    ) -> tuple[State, Info]:
        steps = jnp.asarray(start, jnp.int32) + jnp.arange(length, dtype=jnp.int32)

        def ahead(state: State, key: Key) -> tuple[PyTree, list[Array]]:
            visits = drawn(algorithm, tasks, key, steps)
            return visits, [place(state, ids) for ids in ids_of(visits)]

        def step(
            state: State, hyper: Hyper, t: Int[Array, ""], visit: PyTree, rows: list[Array]
        ) -> tuple[State, Info]:
            now = schedule(hyper, t * algorithm.iterations)
            return algorithm.step(state, with_ids(fetch(visit, tasks), rows), now)

        def one(i: Step, carry: tuple[State, Info]) -> tuple[State, Info]:
            at = partial(jax.lax.dynamic_index_in_dim, index=i, keepdims=False)
            put = partial(jax.lax.dynamic_update_index_in_dim, index=i, axis=0)
            state, info = stepped(carry[0], hyper, *jax.tree.map(at, todo))
            return state, jax.tree.map(put, carry[1], info)

        todo = steps, *each(ahead, (0, 0), 1)(state, key)
        stepped = jax.jit(each(step, (0, 0, None, 0, 0), 0))  # traced once, for both uses
        shapes = jax.eval_shape(stepped, state, hyper, *jax.tree.map(lambda x: x[0], todo))[1]
        infos = jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype), shapes)
        return jax.lax.fori_loop(0, size, one, (state, infos))

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


@kept
def program(
    algorithm: Algorithm,
    schedule: Schedule = constant,
    place: Place = own_place,
    *,
    members: bool = False,
) -> Wrapped:
    """Return a jitted `stretch`; with `members`, of many at once that differ in key and hyper.

    The state is donated: memories are updated in place.
    """
    run = stretch(algorithm, schedule, place, members=members)
    return jax.jit(run, static_argnums=6, donate_argnums=0)


def advance(
    run: Callable[..., tuple[State, Info]], tasks: Tasks, key: Key, hyper: Hyper, length: int
) -> Callable[[State, int, int], tuple[State, Info]]:
    """Return (state, first step, steps) -> state, infos [steps] or [members, steps]."""

    def some(state: State, begin: int, size: int) -> tuple[State, Info]:
        state, infos = run(state, tasks, key, begin, hyper, size, length)
        return state, jax.tree.map(
            lambda x: np.ascontiguousarray(x[:size].T), jax.device_get(infos)
        )

    return some


FILLED = 256  # tasks that are filled at once; their draws depend on it


def fill_some(
    write: Write, k: int, place: Place = own_place
) -> Callable[[State, Tasks, Ids, Key, Hyper], State]:
    """Return the eager filling of some tasks: (state, tasks, ids, key, hyper) -> state."""

    def run(state: State, tasks: Tasks, ids: Ids, key: Key, hyper: Hyper) -> State:
        samples = tasks.fetch(ids, tasks.draw(jax.random.fold_in(key, ids[0]), ids, k))
        return write(state, TaskBatch(place(state, ids), Task(support=samples)), hyper)

    return run


def fill(
    write: Write | None, n: int, k: int, *, chunk: int = FILLED
) -> Callable[[State, Tasks, Key, Hyper], State]:
    """Return the eager filling of all n tasks' memories: (state, tasks, key, hyper) -> state."""
    if write is None:
        raise TypeError("this method has no memories to fill")
    some = fill_some(write, k)

    def run(state: State, tasks: Tasks, key: Key, hyper: Hyper) -> State:
        def write_some(state: State, ids: Ids) -> tuple[State, None]:
            return some(state, tasks, ids, key, hyper), None

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
