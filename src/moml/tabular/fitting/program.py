"""The compiled programs of a table's training, shared by tables of equal shapes.

The table is an argument of all of them. Visits are drawn by a program of their own, which all kinds
of members share: in the training programs random numbers would be most of what is compiled.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.stages import Wrapped
from jaxtyping import Array, Int
from numpy.typing import ArrayLike

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import cosine
from moml.algorithms.tabular.flat import Flat, flat_like, on_vectors, without_memory
from moml.algorithms.tabular.members import Parts, Shape, meta_like, parts
from moml.methods import method
from moml.models.table import Knots
from moml.runtime.compiling import quick_jit
from moml.runtime.mesh import ROWS, WHOLE
from moml.runtime.precompiled import Precompiled
from moml.tabular.rows import RowLists, power
from moml.tasks.groups import Grouped, below, drawn_from, grouped, places
from moml.tasks.sampler import distinct
from moml.training.compose import init_key, run_key, start
from moml.types import (
    Algorithm,
    Batch,
    Hyper,
    Info,
    Key,
    Params,
    SampleSpec,
    State,
    Task,
    TaskBatch,
)

QUERIES = 16  # query rows of a visit, at most
VISIT = 32  # support rows of a visit, at most; for more shots a memory averages over visits
DECAY = 0.01
LARGE = 1 << 16  # rows; smaller tables are padded to a power of two, so that they share programs
LEAST = 256  # rows after padding


class TableData(NamedTuple):
    """The table as an argument of the compiled programs."""

    knots: Knots
    rows: Grouped
    among: Int[Array, "folds groups"]  # groups that the members of a fold learn from
    groups: Int[Array, " folds"]  # how many they are; more are padding
    seed: np.uint32 | jax.Array


class Visits(NamedTuple):
    """What steps draw: groups, and rows of the table, -1 for an empty place."""

    ids: Int[Array, "*steps tasks"]
    rows: Int[Array, "*steps tasks places"]  # the support, then the query


class TablePlan(NamedTuple):
    """What determines the programs, beside the shapes of their arguments."""

    shape: Shape
    shots: int
    steps: int
    chunk: int  # steps of one call
    tasks: int  # of a step
    queries: int  # places for query rows in a visit
    size: int  # numbers of a member, see `Flat`

    @property
    def visit(self) -> int:
        """Places for support rows in a visit."""
        return min(self.shots, VISIT)

    @property
    def memory(self) -> bool:
        """Whether a memory averages over visits."""
        return self.shots > VISIT


class Member(NamedTuple):
    """A kind of member as it is trained on a table."""

    made: Parts
    flat: Flat
    algorithm: Algorithm
    first: Callable[[Key, Key, Hyper], State]  # keys of the network and of the run


def table_data(
    at: Knots,
    x: np.ndarray,
    y: np.ndarray,
    groups: RowLists,
    weights: ArrayLike | None,
    seed: int,
    most: int,
    folds: Sequence[np.ndarray] | None = None,
) -> TableData:
    """The rows of these groups as an argument of the programs, with space for `most` groups.

    Members of seed i learn from the groups folds[i % len(folds)]; by default all from all groups.
    """
    rows = grouped(x, y, groups, weights)
    size = lambda n: n if len(x) >= LARGE else max(LEAST, power(n))
    fill = lambda a, n: np.pad(a, [(0, n - len(a)), *[(0, 0)] * (a.ndim - 1)])
    filled = [fill(a, size(len(x))) for a in rows[:4]] + [fill(a, most) for a in rows[4:]]
    among = [np.arange(len(groups))] if folds is None else folds
    ids = np.stack([fill(np.asarray(some, np.int32), most) for some in among])
    count = np.array([len(some) for some in among], np.int32)
    ids, count = jax.device_put((ids, count))
    return TableData(at, Grouped(*filled), ids, count, np.uint32(seed))


def layout(kind: str, shape: Shape, at: Knots, size: int = 1) -> Flat:
    """The parameters of a kind of member as a vector of at least `size` numbers."""
    return flat_like(meta_like(kind, shape, at), size)


def member(kind: str, plan: TablePlan, given: TableData) -> Member:
    """The training of one kind of member on a table."""
    made = parts(kind, plan.shape, given.knots)
    flat = layout(kind, plan.shape, given.knots, plan.size)
    adapt = on_vectors(made.adapt, flat)
    share = plan.queries / QUERIES  # as if all places were there, the others empty
    loss = lambda params, batch: share * made.loss(params, batch)
    optimizer = lambda eta: optax.chain(
        optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.add_decayed_weights(DECAY),
        optax.scale_by_learning_rate(eta),
    )  # fmt: skip
    need = SampleSpec(plan.tasks, support=plan.visit, query=plan.queries)
    init: Callable[[Key], Params] = lambda key: made.init(jax.random.fold_in(key, given.seed))
    if not plan.memory:
        plain = without_memory(loss, adapt, optimizer, need)
        return Member(made, flat, plain, lambda key, _, hyper: plain.init(init(key), hyper))
    tasks = drawn_from(given.rows, shots=plan.visit, ordered=plan.shape.ordered)
    chosen: Method = method(
        "moml-v1", loss, n=tasks.n, adapt=lambda steps: adapt, optimizer=optimizer,
        tasks_per_step=plan.tasks, k=plan.visit,
    )  # fmt: skip
    begin = lambda key, run, hyper: start(chosen.algorithm, None, init(key), tasks, run, hyper)
    return Member(made, flat, chosen.algorithm, begin)


@lru_cache(maxsize=64)
def draw_program(plan: TablePlan) -> Wrapped:
    """(table, seeds, first step) -> what `chunk` steps draw, leaves [seeds, steps, ...]."""

    def draw(given: TableData, fold: Int[Array, ""], key: Key) -> Visits:
        bits, count = jax.random.bits(key, (plan.tasks, 4), jnp.uint32), given.groups[fold]
        if plan.memory:  # a memory is written once a step
            ids = distinct(jax.random.fold_in(key, 1), count, plan.tasks)
        else:
            ids = jax.vmap(lambda bits: below(bits, count))(bits[:, 0])
        ids = given.among[fold][ids]
        one = partial(
            places, size=plan.visit + plan.queries, shots=plan.visit, ordered=plan.shape.ordered
        )
        drawn = jax.vmap(lambda bits, n: one(bits, n))(bits[:, 1:], given.rows.size[ids])
        at = given.rows.order[given.rows.start[ids][:, None] + jnp.maximum(drawn, 0)]
        return Visits(ids, jnp.where(drawn >= 0, at, -1))

    def run(given: TableData, seeds: Int[Array, " seeds"], begin: Int[Array, ""]) -> Visits:
        steps = begin + jnp.arange(plan.chunk, dtype=jnp.int32)
        folds = len(given.groups)
        of_step = lambda seed, step: draw(
            given, seed % folds, jax.random.fold_in(run_key(seed), step)
        )
        return jax.vmap(lambda seed: jax.vmap(lambda step: of_step(seed, step))(steps))(seeds)

    return quick_jit(run)


@lru_cache(maxsize=64)
def first_program(kinds: tuple[str, ...], plan: TablePlan) -> Wrapped:
    """(table, seeds, hyper [settings]) -> the first states by kind, leaves [settings * seeds]."""

    def run(
        given: TableData, seeds: dict[str, Int[Array, " seeds"]], hyper: Hyper
    ) -> dict[str, State]:
        def states(kind: str) -> State:
            made = member(kind, plan, given)
            one = lambda hyper, seed: made.first(init_key(seed), run_key(seed), hyper)
            every = jax.vmap(jax.vmap(one, (None, 0)), (0, None))
            return _joined(every(hyper, seeds[kind]))

        return {kind: states(kind) for kind in kinds}

    return quick_jit(run, 0)


@lru_cache(maxsize=64)
def train_program(kind: str, plan: TablePlan, mesh: Mesh | None = None) -> Precompiled:
    """(states, table, held-out tasks, visits, first step, number of steps, hyper) -> ...

    It returns states, loss and norm of each step, and predictions for the held-out tasks' queries.
    Members are [settings * seeds]; those that differ in hyper-parameters alone see the same visits.
    On a mesh each device has some of the members; `hyper` is then that of each member, and a last
    argument each member's place among the seeds of `visits`.
    """
    each = mesh is not None

    def run(
        state: State, given: TableData, test: Task, visits: Visits,
        begin: Int[Array, ""], count: Int[Array, ""], hyper: Hyper,
    ) -> tuple[State, Info, jax.Array]:  # fmt: skip
        made, flat, algorithm, _ = member(kind, plan, given)
        fetch = jax.vmap(partial(_fetched, given.rows, plan.visit))
        over_seeds = jax.vmap(algorithm.step, (0, 0, None))
        step = jax.vmap(over_seeds, (0, 0 if each else None, 0))
        now = jax.vmap(cosine(plan.steps), (0, None))
        settings = len(jax.tree.leaves(hyper)[0])
        split = lambda leaf: (settings, len(leaf) // settings, *leaf.shape[1:])
        state = jax.tree.map(lambda leaf: leaf.reshape(split(leaf)), state)  # some are of size 0

        def one(i: Int[Array, ""], carry: tuple[State, Info]) -> tuple[State, Info]:
            # vmap is inside the loop: around it, the loop would be traced several times
            state, seen = carry
            batch = fetch(visits.ids[:, i], visits.rows[:, i])
            if each:  # a setting of its own
                batch = jax.tree.map(lambda leaf: leaf[:, None], batch)
            state, info = step(state, batch, now(hyper, begin + i))
            return state, jax.tree.map(lambda all_, new: all_.at[..., i].set(new), seen, info)

        nothing = jnp.zeros((*state.meta.shape[:2], plan.chunk), state.meta.dtype)
        state, info = jax.lax.fori_loop(0, count, one, (state, Info(nothing, nothing)))
        state, info = _joined((state, info))

        def answers(vector: jax.Array) -> jax.Array:
            meta = flat.tree(vector)

            def answer(support: Batch, x: jax.Array) -> jax.Array:
                p = made.adapt.apply(meta, support, Hyper(eta=0.0))
                return made.answer(made.adapt.merge(meta, p), x)

            return jax.vmap(answer)(test.support, test.query.x)

        return state, info, jax.vmap(answers)(state.meta)

    if mesh is None:
        return Precompiled(quick_jit(run, donate_argnums=0))

    def some(
        state: State, given: TableData, test: Task, visits: Visits,
        begin: Int[Array, ""], count: Int[Array, ""], hyper: Hyper, seed: Int[Array, " members"],
    ) -> tuple[State, Info, jax.Array]:  # fmt: skip
        visits = jax.tree.map(lambda leaf: leaf[seed], visits)
        return run(state, given, test, visits, begin, count, hyper)

    into = (ROWS, *[WHOLE] * 5, ROWS, ROWS)
    spread = jax.shard_map(some, mesh=mesh, in_specs=into, out_specs=ROWS, check_vma=False)
    return Precompiled(quick_jit(spread, donate_argnums=0))


def _fetched(
    table: Grouped, visit: int, ids: Int[Array, " tasks"], rows: Int[Array, "tasks places"]
) -> TaskBatch:
    """The rows of a step's visits; an empty place has the first row, and no weight."""
    at = jnp.maximum(rows, 0)
    take = lambda values: values.at[at].get(mode="promise_in_bounds")
    both = Batch(take(table.x), take(table.y), jnp.where(rows >= 0, take(table.weights), 0))
    cut = lambda begin, end: jax.tree.map(lambda leaf: leaf[:, begin:end], both)
    return TaskBatch(ids, Task(cut(0, visit), cut(visit, rows.shape[1])))


def _joined(tree: State) -> State:
    """Leaves [settings, seeds, ...] as [settings * seeds, ...]."""
    every = lambda leaf: (leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])
    return jax.tree.map(lambda leaf: leaf.reshape(every(leaf)), tree)
