"""One device: a stretch of training is two compiled programs, its draws and its steps."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Lowered, Wrapped
from jaxtyping import Array, Int, PyTree

from moml.algorithms.parts.schedule import Schedule, constant, scheduled
from moml.kept import kept
from moml.runtime.account import nbytes
from moml.runtime.compiling import compile_all, quick_jit
from moml.tasks.sampler import draw, fetch, set_of, sets_in, specs_in
from moml.types import Algorithm, Hyper, Info, Key, State, Task, TaskBatch, Tasks

Step = Int[Array, ""] | int  # the number of a step
Stretch = Callable[[State, Tasks, PyTree, Step, Hyper, Step], tuple[State, Info]]
Place = Callable[[State, Int[Array, "..."]], Int[Array, "..."]]  # state, ids -> their rows
Ids = Int[Array, " tasks"]
Write = Callable[..., State]  # state, visit, hyper


def drawn(needs: PyTree, tasks: Tasks, key: Key, start: Step, length: int) -> PyTree:
    """Return the draws of `length` steps from `start`, side by side, not fetched.

    They depend on the key and the numbers of the steps alone. Inside the loop over steps they would
    cost many times the step.
    """
    steps = jnp.asarray(start, jnp.int32) + jnp.arange(length, dtype=jnp.int32)
    keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(steps)
    return jax.vmap(lambda key: draw(key, needs, tasks))(keys)


@kept
def draws(needs: PyTree, *, members: bool = False) -> Wrapped:
    """Return the jitted `drawn`: (tasks, key, start, length) -> visits; methods share it.

    With `members` there is a key of each, and visits are [length, members, ...].
    """

    def run(tasks: Tasks, key: Key, start: Step, length: int) -> PyTree:
        one = lambda key: drawn(needs, tasks, key, start, length)
        return jax.vmap(one, out_axes=1)(key) if members else one(key)

    return quick_jit(run, 2, static_argnums=3)


def own_place(state: State, ids: Int[Array, "..."]) -> Int[Array, "..."]:
    """Return the rows of tasks in a store of all tasks: their ids."""
    return ids


def stretch(
    algorithm: Algorithm,
    schedule: Schedule = constant,
    place: Place = own_place,
    *,
    members: bool = False,
    shared: bool = False,
) -> Stretch:
    """Return (state, tasks, visits, start, hyper, size) -> state, infos [length].

    These are `size` steps from `start`, at most the `length` of visits: one program serves a last
    stretch that is shorter. With `members` state, visits and hyper have an axis of them, and so
    have infos, [length, members]; visits have none where members have `shared` draws. `place` gives
    the row of a task in the store, where that is not its id.
    """
    each = jax.vmap if members else lambda f, in_axes, out_axes=0: f
    own = None if shared else 0  # the axis of members of a visit

    def run(
        state: State, tasks: Tasks, visits: PyTree, start: Step, hyper: Hyper, size: Step
    ) -> tuple[State, Info]:
        def places(state: State, visits: PyTree) -> list[Array]:
            return [place(state, ids) for ids in ids_of(visits)]

        def step(
            state: State, hyper: Hyper, t: Int[Array, ""], visit: PyTree, rows: list[Array]
        ) -> tuple[State, Info]:
            now = scheduled(schedule, hyper, t * algorithm.iterations)
            return algorithm.step(state, with_ids(fetch(visit, tasks), rows), now)

        def one(i: Step, carry: tuple[State, Info]) -> tuple[State, Info]:
            at = partial(jax.lax.dynamic_index_in_dim, index=i, keepdims=False)
            put = partial(jax.lax.dynamic_update_index_in_dim, index=i, axis=0)
            state, info = stepped(carry[0], hyper, *jax.tree.map(at, todo))
            return state, jax.tree.map(put, carry[1], info)

        length = len(jax.tree.leaves(visits)[0])
        steps = jnp.asarray(start, jnp.int32) + jnp.arange(length, dtype=jnp.int32)
        rows = places if shared else each(places, (0, 1), 1)
        todo = steps, visits, rows(state, visits)
        stepped = jax.jit(each(step, (0, 0, None, own, own)))  # traced once, for both uses
        shapes = jax.eval_shape(stepped, state, hyper, *jax.tree.map(lambda x: x[0], todo))[1]
        infos = jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype), shapes)
        return jax.lax.fori_loop(0, size, one, (state, infos))

    return run


def _is_visit(part: object) -> bool:
    return isinstance(part, TaskBatch)


def ids_of(visits: PyTree) -> list[PyTree]:
    """Return the ids of a tree of visits, or their shapes, one array a visit."""
    return [visit.ids for visit in jax.tree.leaves(visits, is_leaf=_is_visit)]


def with_ids(visits: PyTree, ids: list[Int[Array, "..."]]) -> PyTree:
    """Return the same tree with other ids."""
    leaves, tree = jax.tree.flatten(visits, is_leaf=_is_visit)
    moved = [visit._replace(ids=new) for visit, new in zip(leaves, ids, strict=True)]
    return jax.tree.unflatten(tree, moved)


def read(visits: PyTree, tasks: Tasks) -> PyTree:
    """Return the visits with samples in place of their draws, where tasks are read from files."""
    read_from = tasks.read
    if read_from is None:
        return visits

    def one(visit: TaskBatch) -> TaskBatch:
        drawn = jax.tree.map(np.asarray, visit)
        parts = [None if part is None else read_from(drawn.ids, part) for part in drawn.task]
        return visit._replace(task=Task(*parts))

    return jax.tree.map(one, visits, is_leaf=_is_visit)


class Program(NamedTuple):
    """A stretch in two programs, draws and steps; `kept` gives methods with like draws the same."""

    draws: Wrapped
    steps: Wrapped

    def __call__(
        self, state: State, tasks: Tasks, key: Key, start: Step, hyper: Hyper, size: Step,
        length: int,
    ) -> tuple[State, Info]:  # fmt: skip
        """Make `size` steps from `start`, at most `length`: the state and infos [length]."""
        visits = read(self.draws(tasks, key, start, length), tasks)
        return self.steps(state, tasks, visits, start, hyper, size)

    def lower(
        self, state: State, tasks: Tasks, key: Key | jax.ShapeDtypeStruct, hyper: Hyper, length: int
    ) -> tuple[Lowered, Lowered]:
        """Lower both for arguments of these shapes."""
        draws = self.draws.lower(tasks, key, 0, length)
        visits = draws.out_info
        if tasks.read is not None:  # the first rows, for their shapes
            visits = read(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), visits), tasks)
        return draws, self.steps.lower(state, tasks, visits, 0, hyper, 0)


@kept
def program(
    algorithm: Algorithm,
    schedule: Schedule = constant,
    place: Place = own_place,
    *,
    members: bool = False,
    shared: bool = False,
) -> Program:
    """Return a compiled `stretch`; with `members`, of many at once that differ in key and hyper.

    With `shared` they have one key, and so draw the same.

    The state is donated: memories are updated in place.
    """
    run = stretch(algorithm, schedule, place, members=members, shared=shared)
    drawn_ = draws(algorithm.needs, members=members and not shared)
    return Program(drawn_, jax.jit(run, donate_argnums=0))


def advance(
    run: Program, tasks: Tasks, key: Key, hyper: Hyper, length: int
) -> Callable[[State, int, int], tuple[State, Info]]:
    """Return (state, first step, steps) -> state, infos [steps] or [members, steps]."""
    compiled = False

    def some(state: State, begin: int, size: int) -> tuple[State, Info]:
        nonlocal compiled
        if not compiled:
            compile_all(*run.lower(state, tasks, key, hyper, length))
            compiled = True
        state, infos = run(state, tasks, key, begin, hyper, size, length)
        return state, jax.tree.map(
            lambda x: np.ascontiguousarray(x[:size].T), jax.device_get(infos)
        )

    return some


FILLED = 256  # tasks that are filled at once; their draws depend on it


def fill_some(
    write: Write | None, k: int, place: Place = own_place
) -> Callable[[State, Tasks, Ids, Key, Hyper], State]:
    """Return the eager filling of some tasks: (state, tasks, ids, key, hyper) -> state."""
    if write is None:
        raise TypeError("this method has no memories to fill")

    def run(state: State, tasks: Tasks, ids: Ids, key: Key, hyper: Hyper) -> State:
        samples = tasks.fetch(ids, tasks.draw(jax.random.fold_in(key, ids[0]), ids, k))
        return write(state, TaskBatch(place(state, ids), Task(support=samples)), hyper)

    return run


def fill(write: Write | None, n: int, k: int) -> Callable[[State, Tasks, Key, Hyper], State]:
    """Return the eager filling of all n tasks' memories: (state, tasks, key, hyper) -> state."""
    some = fill_some(write, k)

    def run(state: State, tasks: Tasks, key: Key, hyper: Hyper) -> State:
        def write_some(state: State, ids: Ids) -> tuple[State, None]:
            return some(state, tasks, ids, key, hyper), None

        ids = jnp.arange(n, dtype=jnp.int32)
        whole = n - n % FILLED
        if whole:
            state, _ = jax.lax.scan(write_some, state, ids[:whole].reshape(-1, FILLED))
        return write_some(state, ids[whole:])[0] if whole < n else state

    return run


def samples_per_step(needs: PyTree, tasks: Tasks) -> int:
    """Return how many samples a step draws, S2 = S1 once; of epochs the mean over all clients."""
    total = 0
    for need in specs_in(needs):
        sets: float = need.visits or 1
        if need.epochs is not None:
            sets = float(np.mean(np.asarray(sets_in(need, np.asarray(tasks.index)))))
        total += round(need.tasks * (set_of(need) * sets + need.restart) * (need.times or 1))
    return total


def steps_that_fit(algorithm: Algorithm, tasks: Tasks, budget: int = 1 << 26) -> int:
    """Return how many steps may be drawn ahead within `budget` bytes, from 1 to 1000."""
    held = lambda key: draw(key, algorithm.needs, tasks)
    if tasks.read is not None:
        held = lambda key: fetch(draw(key, algorithm.needs, tasks), tasks)
    size = nbytes(jax.eval_shape(held, jax.random.key(0)))
    return max(1, min(1000, budget // max(size, 1)))
