"""Scores on tasks that were not trained on: adapt on a few samples, score on others."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from moml.errors import ConfigError, DataError, check_count
from moml.tasks.sampler import shuffled
from moml.training.check import check_loss
from moml.training.fit import Learner
from moml.types import Adapt, Hyper, Key, Loss, Meta, Params, Tasks

Score = Callable[[Params, Any, Any], Any]  # personal parameters, support, query

STEPS = (0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)  # numbers of known samples


def levels(shots: int) -> list[int]:
    """Numbers of known rows to score with.

    >>> levels(4), levels(10)
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 5, 10])
    """
    return sorted({shots, *(step for step in STEPS if step < shots)})


def score_on(
    score: Score, adapt: Adapt, tasks: Tasks, key: Key, *, shots: int, queries: int | None
) -> Callable[[Meta, Hyper, Int[Array, ""]], Any]:
    """A task's score on `queries` samples after adapting on `shots` others; None: on all others.

    All others are padded to the largest task's, with a mask: `score` must honour it.
    """
    if tasks.n is None:
        raise ConfigError("scores need a fixed set of test tasks; given: a stream")
    if tasks.least is not None and shots + (queries or 1) > tasks.least:
        raise ConfigError(
            f"{shots} shots and {queries or 1} queries, but the smallest task has {tasks.least} "
            "samples"
        )
    both = _some(tasks, shots, queries) if queries is not None else _all(tasks, shots)

    def one(meta: Meta, hyper: Hyper, i: Int[Array, ""]) -> Any:
        support, query = both(jax.random.fold_in(key, i), i)
        mine = adapt.merge(meta, adapt.apply(meta, support, hyper))
        return score(mine, support, query)

    return one


def scores_on(
    score: Score, adapt: Adapt, tasks: Tasks, key: Key, *, chunk: int, **how: Any
) -> Callable[[Meta, Hyper], Float[Array, " n"]]:
    """The `score_on` of every task, `chunk` of them side by side."""
    one = score_on(score, adapt, tasks, key, **how)
    n = tasks.n or 0  # a stream was refused

    def scores(meta: Meta, hyper: Hyper) -> Float[Array, " n"]:
        return jax.lax.map(lambda i: one(meta, hyper, i), jnp.arange(n), batch_size=min(chunk, n))

    return scores


def _part(tasks: Tasks, i: Int[Array, ""], drawn: Any, cut: slice) -> Any:
    samples = tasks.fetch(i[None], jax.tree.map(lambda x: x[:, cut], drawn))
    return jax.tree.map(lambda x: x[0], samples)


def _some(tasks: Tasks, shots: int, queries: int) -> Callable[[Key, Int[Array, ""]], Any]:
    def both(key: Key, i: Int[Array, ""]) -> Any:
        drawn = tasks.draw(key, i[None], shots + queries)
        return tuple(_part(tasks, i, drawn, cut) for cut in (slice(shots), slice(shots, None)))

    return both


def _all(tasks: Tasks, shots: int) -> Callable[[Key, Int[Array, ""]], Any]:
    """`shots` rows of a task, and the rest of its rows with a mask."""
    if tasks.n is None or tasks.sizes is None:
        raise ConfigError("to score on all other samples, tasks must have sizes")
    sizes = tasks.sizes
    width = int(jnp.max(sizes(jnp.arange(tasks.n))))
    place = jnp.arange(width, dtype=jnp.int32)

    def both(key: Key, i: Int[Array, ""]) -> Any:
        own = sizes(i[None])[0]
        rows = shuffled(key, own, width)
        padded = jnp.where(place < own, rows, rows[0])[None]
        query = _part(tasks, i, padded, slice(shots, None))
        return _part(tasks, i, padded, slice(shots)), query._replace(mask=place[shots:] < own)

    return both


def errors_on(
    loss: Loss, adapt: Adapt, tasks: Tasks, key: Key, *, shots: int, queries: int, chunk: int = 256
) -> Callable[[Meta, Hyper], Float[Array, " n"]]:
    """Each task's loss on `queries` samples after adapting on `shots` others."""
    on_query = lambda mine, support, query: loss(mine, query)
    return scores_on(on_query, adapt, tasks, key, shots=shots, queries=queries, chunk=chunk)


def evaluate(
    learner: Learner,
    loss: Loss,
    tasks: Tasks,
    *,
    shots: int,
    steps: int | None = None,
    queries: int | None = None,
    seed: int = 0,
) -> Float[Array, " n"]:
    """Per-task test loss of a learner: `steps` adaptation steps on `shots` samples, then score.

    Scored on `queries` other samples: 100, or for finite tasks all that every one of them has left.
    """
    if not isinstance(tasks, Tasks):
        raise DataError(f"tasks must be moml.Tasks, see moml.from_arrays; given {type(tasks)}")
    check_count("shots", shots, below=tasks.least)
    check_count("seed", seed, least=0, below=2**32)
    check_loss(loss, learner.params, tasks, shots)
    if queries is None:
        queries = 100 if tasks.least is None else tasks.least - shots
    check_count("queries", queries)
    steps = learner.method.inner_steps if steps is None else check_count("steps", steps)
    adapt = learner.method.adaptation(steps)
    score = errors_on(loss, adapt, tasks, jax.random.key(seed), shots=shots, queries=queries)
    return jax.jit(score)(learner.meta, learner.hyper)
