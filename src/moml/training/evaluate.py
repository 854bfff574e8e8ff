"""Scores on unseen tasks: adapt on a few samples, score on others."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from moml.algorithms.parts.task_map import in_batches
from moml.algorithms.signature import Adaptation
from moml.errors import ConfigError, DataError, check_count
from moml.kept import kept
from moml.tasks.keyed import without_bits
from moml.tasks.sampler import shuffled
from moml.training.check import check_loss, check_samples
from moml.training.learner import Learner
from moml.types import Adapt, Hyper, Key, Loss, Meta, Params, Samples, SampleSpec, Tasks

Score = Callable[[Params, Samples, Samples], PyTree]  # personal parameters, support, query
SupportAndQuery = Callable[[Tasks, Key, Int[Array, ""]], tuple[Samples, Samples]]

AT_ONCE = 256  # tasks that are scored side by side
STEPS = (0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)  # numbers of known samples


def levels(shots: int) -> list[int]:
    """Numbers of known rows to score with.

    >>> levels(4), levels(10)
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 5, 10])
    """
    return sorted({shots, *(step for step in STEPS if step < shots)})


def check_shots(tasks: Tasks, shots: int, queries: int | None) -> None:
    """Raise unless tasks have `shots` samples to adapt on and `queries`, or any, to score on."""
    if tasks.n is None:
        raise ConfigError("scores need a fixed set of test tasks; got a stream")
    if tasks.least is not None and shots + (queries or 1) > tasks.least:
        raise ConfigError(
            f"{shots} shots and {queries or 1} queries, but the smallest task has {tasks.least} "
            "samples"
        )
    if queries is None and not tasks.sized:
        raise ConfigError("to score on all other samples, tasks must have sizes")


def score_on(
    score: Score, adapt: Adapt, *, shots: int, queries: int | None, most: int = 0
) -> Callable[[Meta, Hyper, Tasks, Key, Int[Array, ""]], PyTree]:
    """A task's score on `queries` samples after adapting on `shots` others; None: on all others.

    All others are padded to the `most` that any task has, with a mask: `score` must honour it.
    """
    both = _all_others(shots, most) if queries is None else _some(shots, queries)

    def one(meta: Meta, hyper: Hyper, tasks: Tasks, key: Key, i: Int[Array, ""]) -> PyTree:
        support, query = both(tasks, jax.random.fold_in(key, i), i)
        mine = adapt.merge(meta, adapt.apply(meta, support, hyper))
        return score(mine, support, query)

    return one


def _some(shots: int, queries: int) -> SupportAndQuery:
    """`shots` samples of a task, and `queries` others."""
    return lambda tasks, key, i: _parts(tasks, i, tasks.draw(key, i[None], shots + queries), shots)


def _all_others(shots: int, most: int) -> SupportAndQuery:
    """`shots` samples of a task, and all others, padded."""

    def both(tasks: Tasks, key: Key, i: Int[Array, ""]) -> tuple[Samples, Samples]:
        size, place = tasks.sizes(i[None])[0], jnp.arange(most, dtype=jnp.int32)
        rows = shuffled(key, size, most)
        support, query = _parts(tasks, i, jnp.where(place < size, rows, rows[0])[None], shots)
        return support, query._replace(mask=place[shots:] < size)

    return both


def _parts(tasks: Tasks, i: Int[Array, ""], drawn: PyTree, shots: int) -> tuple[Samples, Samples]:
    """The first `shots` drawn samples, and the rest; without bits, so that no loss draws."""
    cut = lambda at: tasks.fetch(i[None], jax.tree.map(lambda x: x[:, at], drawn))
    first = lambda samples: without_bits(jax.tree.map(lambda x: x[0], samples))
    return first(cut(slice(shots))), first(cut(slice(shots, None)))


def most_samples(tasks: Tasks, queries: int | None) -> int:
    """The size of the largest task, where all its samples are scored on; else 0."""
    return 0 if queries is not None else int(np.max(tasks.index))


def scores_on(
    score: Score,
    adapt: Adapt,
    *,
    shots: int,
    queries: int | None,
    most: int = 0,
    chunk: int = AT_ONCE,
) -> Callable[[Meta, Hyper, Tasks, Key], Float[Array, " n"]]:
    """The `score_on` of every task, `chunk` of them side by side."""
    one = score_on(score, adapt, shots=shots, queries=queries, most=most)

    def scores(meta: Meta, hyper: Hyper, tasks: Tasks, key: Key) -> Float[Array, " n"]:
        n = tasks.n or 0  # a stream was refused
        each = lambda i: one(meta, hyper, tasks, key, i)
        return in_batches(each, jnp.arange(n), chunk)

    return scores


@kept
def unadapted(adaptation: Adaptation) -> Adaptation:
    """An adaptation that leaves the model as it is, for scores before adapting."""

    def none(steps: int) -> Adapt:
        adapt = adaptation(steps)
        return adapt._replace(apply=lambda meta, support, hyper: adapt.start(meta))

    return none


@kept
def on_query(loss: Loss) -> Score:
    """The loss on the query, as a score."""
    return lambda mine, support, query: loss(mine, query)


@kept
def errors_on(
    adaptation: Adaptation, steps: int, loss: Loss, shots: int, queries: int
) -> Callable[[Meta, Hyper, Tasks, Key], Float[Array, " n"]]:
    """Jitted: each task's loss on `queries` samples after adapting on `shots` others."""
    return jax.jit(scores_on(on_query(loss), adaptation(steps), shots=shots, queries=queries))


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
    """Compute the test loss of each task after adapting a learner to it.

    Parameters
    ----------
    learner, loss, tasks
        A trained learner, a loss, and a fixed set of tasks.
    shots, steps
        Samples to adapt on, and adaptation steps; by default those of the method.
    queries
        Other samples to score on; by default 100, of finite tasks all that every one has left.
    seed
        Of the draw of samples.

    Returns
    -------
    One loss a task.

    >>> import jax, moml
    >>> net = moml.mlp(1, 8, 1)
    >>> loss, w = moml.mse(net.predict), net.init(jax.random.key(0))
    >>> learner = moml.fit("maml", loss, w, moml.sine(), iterations=10)
    >>> moml.evaluate(learner, loss, moml.unseen_sine(jax.random.key(1), n=3), shots=5).shape
    (3,)
    """
    if not isinstance(tasks, Tasks):
        raise DataError(f"tasks must be moml.Tasks, see moml.from_arrays; got {type(tasks)}")
    check_count("shots", shots, below=tasks.least)
    check_count("seed", seed, least=0, below=2**32)
    check_samples(SampleSpec(min(tasks.n or 1, AT_ONCE), support=shots), tasks)
    check_loss(loss, learner.params, tasks, shots, training=False)
    if queries is None:
        queries = 100 if tasks.least is None else tasks.least - shots
    check_count("queries", queries)
    steps = learner.method.inner_steps if steps is None else check_count("steps", steps)
    check_shots(tasks, shots, queries)
    program = errors_on(learner.method.adaptation, steps, loss, shots, queries)
    return program(learner.meta, learner.hyper, tasks, jax.random.key(seed))
