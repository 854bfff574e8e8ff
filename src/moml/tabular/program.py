"""The training problem of a table and its compiled programs, shared by tables of equal shapes."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import cosine
from moml.algorithms.single.matching import match_beta
from moml.algorithms.tabular.members import Parts, Shape, parts
from moml.methods import method
from moml.models.table import Knots
from moml.runtime import simulate
from moml.tabular.rows import RowLists, power
from moml.tasks.groups import Grouped, drawn_from, grouped
from moml.training.compose import init_key, start
from moml.types import Batch, Hyper, Info, Key, Meta, Params, SampleSpec, State, Task, Tasks

QUERIES = 16  # query rows of a visit
VISIT = 32  # support rows of a visit, at most; for more shots a memory averages over visits
DECAY = 0.01
LARGE = 1 << 16  # rows; smaller tables are padded to a power of two, so that they share programs
LEAST = 256  # rows after padding


class TableData(NamedTuple):
    """The table as an argument of the compiled programs."""

    knots: Knots
    rows: Grouped
    seed: np.uint32 | jax.Array


class Setup(NamedTuple):
    """What is trained on a table, and how."""

    made: Parts
    tasks: Tasks
    chosen: Method
    betas: list[float]  # weights of the memory to try
    init: Callable[[Key], Params]


class Compiled(NamedTuple):
    """Programs over members, each with the table as an argument."""

    first: Callable[..., State]
    stretch: Callable[..., tuple[State, Info]]
    answers: Callable[..., jax.Array]  # predictions of the held-out tasks' queries


def table_data(
    at: Knots, x: np.ndarray, y: np.ndarray, groups: RowLists, weights: ArrayLike | None, seed: int
) -> TableData:
    """The rows of these groups as an argument of the programs."""
    return TableData(at, _filled(grouped(x, y, groups, weights)), np.uint32(seed))


def _filled(rows: Grouped) -> Grouped:
    """A small table padded to a power of two with rows that belong to no group."""
    if len(rows.x) >= LARGE:
        return rows
    size = lambda n: max(LEAST, power(n))
    space = lambda a: [(0, size(len(a)) - len(a)), *[(0, 0)] * (a.ndim - 1)]
    more = lambda a: jnp.asarray(np.pad(a, space(a)))
    x, y, weights, order, *rest = rows
    return Grouped(more(x), more(y), more(weights), more(order), *rest)


def setup(kind: str, shape: Shape, shots: int, steps: int, given: TableData) -> Setup:
    """The training of one kind of member on a table; betas are chosen by the matching rule."""
    made = parts(kind, shape, given.knots)
    visit = min(shots, VISIT)
    tasks = drawn_from(given.rows, shots=visit, ordered=shape.ordered)
    count = tasks.n or 1
    batch = min(16 if count < 5000 else 32, count)
    need = SampleSpec(batch, support=visit, query=QUERIES, replace=shots <= VISIT)
    optimizer = lambda eta: optax.chain(
        optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.add_decayed_weights(DECAY),
        optax.scale_by_learning_rate(eta),
    )  # fmt: skip
    name, betas = "maml", [1.0]
    if shots > VISIT:
        name, betas = "moml-v1", [1.0, match_beta(visit, shots, visits=steps * batch / count)]
    chosen = method(
        name, made.loss, n=tasks.n, adapt=lambda steps: made.adapt, optimizer=optimizer,
        tasks_per_step=batch, k=visit,
    )  # fmt: skip
    chosen = chosen._replace(algorithm=chosen.algorithm._replace(needs=need))
    init = lambda key: made.init(jax.random.fold_in(key, given.seed))
    return Setup(made, tasks, chosen, betas, init)


@lru_cache(maxsize=64)
def compiled(kind: str, shape: Shape, shots: int, steps: int) -> Compiled:
    """The programs of a kind of member and a number of steps, compiled once."""
    of = partial(setup, kind, shape, shots, steps)

    def first(given: TableData, seed: jax.Array, key: Key, hyper: Hyper) -> State:
        some = of(given)
        return start(some.chosen.algorithm, None, some.init(init_key(seed)), some.tasks, key, hyper)

    def run(
        state: State,
        given: TableData,
        key: Key,
        begin: jax.Array,
        hyper: Hyper,
        size: jax.Array,
        length: int,
    ) -> tuple[State, Info]:
        some = of(given)
        go = simulate.stretch(some.chosen.algorithm, cosine(steps))
        return go(state, some.tasks, key, begin, hyper, size, length)

    def answers(meta: Meta, given: TableData, test: Task) -> jax.Array:
        made = of(given).made

        def one(support: Batch, x: jax.Array) -> jax.Array:
            p = made.adapt.apply(meta, support, Hyper(eta=0.0))
            return made.answer(made.adapt.merge(meta, p), x)

        return jax.vmap(one)(test.support, test.query.x)

    return Compiled(
        jax.jit(jax.vmap(first, (None, 0, 0, 0))),
        jax.jit(
            jax.vmap(run, (0, None, 0, None, 0, None, None)), static_argnums=6, donate_argnums=0
        ),
        jax.jit(jax.vmap(answers, (0, None, None))),
    )
