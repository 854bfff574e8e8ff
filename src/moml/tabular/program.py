"""What is trained on a table, and the programs that do it; tables of like shapes share them."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import cosine
from moml.algorithms.single.matching import match_beta
from moml.algorithms.tabular.members import Parts, Shape, parts
from moml.methods import method
from moml.models.table import Knots
from moml.runtime import simulate
from moml.tabular.model import power
from moml.tasks.groups import Grouped, drawn_from, grouped
from moml.training.sweep import first_state
from moml.types import Batch, Hyper, Key, Meta, Params, SampleSpec, Tasks

QUERIES = 16  # rows asked for in a visit
VISIT = 32  # rows known in a visit, at most; where users bring more, a memory joins the visits
DECAY = 0.01
LARGE = 1 << 16  # rows; fewer are filled up to a power of two, so that tables share programs
LEAST = 256  # of these


class Held(NamedTuple):
    """Held-out tasks, as users will come: what is known of each, and what is asked for."""

    support: Batch
    query: Batch


class Given(NamedTuple):
    """The table, as a program takes it: another one of such shapes needs no other program."""

    knots: Knots
    rows: Grouped
    seed: Any


class Problem(NamedTuple):
    """What is trained on a table."""

    made: Parts
    tasks: Tasks
    chosen: Method
    betas: list[float]  # weights of its memory to try
    init: Callable[[Key], Params]


class Compiled(NamedTuple):
    """Programs over members, each given the table."""

    first: Any
    stretch: Any
    answers: Any  # to the held-out tasks' queries


def as_given(at: Knots, x: Any, y: Any, groups: Sequence[Any], weights: Any, seed: int) -> Given:
    """The rows of these groups, as programs take them."""
    return Given(at, _filled(grouped(x, y, groups, weights)), np.uint32(seed))


def _filled(rows: Grouped) -> Grouped:
    """Rows up to a power of two that nobody owns, where there are few."""
    if len(rows.x) >= LARGE:
        return rows
    size = lambda n: max(LEAST, power(n))
    space = lambda a: [(0, size(len(a)) - len(a)), *[(0, 0)] * (a.ndim - 1)]
    more = lambda a: jnp.asarray(np.pad(a, space(a)))
    x, y, weights, order, *rest = rows
    return Grouped(more(x), more(y), more(weights), more(order), *rest)


def _compose(made: Parts, tasks: Tasks, shots: int, iterations: int) -> tuple[Method, list[float]]:
    """The method of a kind, and the weights of its memory to try: by the matching rule."""
    count = tasks.n or 1
    batch, visit = min(16 if count < 5000 else 32, count), min(shots, VISIT)
    need = SampleSpec(batch, support=visit, query=QUERIES, replace=shots <= VISIT)
    optimizer = lambda eta: optax.chain(
        optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.add_decayed_weights(DECAY),
        optax.scale_by_learning_rate(eta),
    )  # fmt: skip
    betas = [1.0]
    if shots > VISIT:
        betas.append(match_beta(visit, shots, visits=iterations * batch / count))
    name = "maml" if shots <= VISIT else "moml-v1"
    chosen = method(
        name, made.loss, n=tasks.n, adapt=lambda steps: made.adapt, optimizer=optimizer,
        tasks_per_step=batch, k=visit,
    )  # fmt: skip
    return chosen._replace(algorithm=chosen.algorithm._replace(needs=need)), betas


def problem(kind: str, shape: Shape, shots: int, steps: int, given: Given) -> Problem:
    """The method of a kind on a table, and what it is made of."""
    made = parts(kind, shape, given.knots)
    tasks = drawn_from(given.rows, shots=min(shots, VISIT), ordered=shape.ordered)
    init = lambda key: made.init(jax.random.fold_in(key, given.seed))
    return Problem(made, tasks, *_compose(made, tasks, shots, steps), init)


@lru_cache(maxsize=64)
def compiled(kind: str, shape: Shape, shots: int, steps: int) -> Compiled:
    """The programs of a kind and a number of steps, made once."""
    of = partial(problem, kind, shape, shots, steps)

    def first(given: Given, seed: Any, key: Key, hyper: Hyper) -> Any:
        some = of(given)
        return first_state(some.chosen, some.init, some.tasks)(seed, key, hyper)

    def run(state: Any, given: Given, key: Key, begin: Any, hyper: Hyper, length: int) -> Any:
        some = of(given)
        go = simulate.stretch(some.chosen.algorithm, some.tasks, cosine(steps))
        return go(state, key, begin, hyper, length)

    def answers(meta: Meta, given: Given, test: Held) -> Any:
        made = of(given).made

        def one(support: Batch, x: Any) -> Any:
            mine = made.adapt.merge(meta, made.adapt.apply(meta, support, Hyper(eta=0.0)))
            return made.answer(mine, x)

        return jax.vmap(one)(test.support, test.query.x)

    return Compiled(
        jax.jit(jax.vmap(first, (None, 0, 0, 0))),
        jax.jit(jax.vmap(run, (0, None, 0, None, 0, None)), static_argnums=5, donate_argnums=0),
        jax.jit(jax.vmap(answers, (0, None, None))),
    )
