"""Scores on unseen tasks: adapt on a few samples, score on others."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from moml.errors import ConfigError, DataError, check_count
from moml.tasks.sampler import shuffled
from moml.training.check import check_loss
from moml.training.fit import Learner
from moml.types import Adapt, Hyper, Key, Loss, Meta, Params, Samples, Tasks

Score = Callable[[Params, Samples, Samples], PyTree]  # personal parameters, support, query

STEPS = (0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)  # numbers of known samples


def levels(shots: int) -> list[int]:
    """Numbers of known rows to score with.

    >>> levels(4), levels(10)
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 5, 10])
    """
    return sorted({shots, *(step for step in STEPS if step < shots)})


def score_on(
    score: Score, adapt: Adapt, tasks: Tasks, key: Key, *, shots: int, queries: int | None
) -> Callable[[Meta, Hyper, Int[Array, ""]], PyTree]:
    """A task's score on `queries` samples after adapting on `shots` others; None: on all others.

    All others are padded to the largest task's, with a mask: `score` must honour it.
    """
    if tasks.n is None:
        raise ConfigError("scores need a fixed set of test tasks; got a stream")
    if tasks.least is not None and shots + (queries or 1) > tasks.least:
        raise ConfigError(
            f"{shots} shots and {queries or 1} queries, but the smallest task has {tasks.least} "
            "samples"
        )
    both = _support_and_query(tasks, shots, queries)

    def one(meta: Meta, hyper: Hyper, i: Int[Array, ""]) -> PyTree:
        support, query = both(jax.random.fold_in(key, i), i)
        mine = adapt.merge(meta, adapt.apply(meta, support, hyper))
        return score(mine, support, query)

    return one


def scores_on(
    score: Score,
    adapt: Adapt,
    tasks: Tasks,
    key: Key,
    *,
    shots: int,
    queries: int | None,
    chunk: int = 256,
) -> Callable[[Meta, Hyper], Float[Array, " n"]]:
    """The `score_on` of every task, `chunk` of them side by side."""
    one = score_on(score, adapt, tasks, key, shots=shots, queries=queries)
    n = tasks.n or 0  # a stream was refused

    def scores(meta: Meta, hyper: Hyper) -> Float[Array, " n"]:
        return jax.lax.map(lambda i: one(meta, hyper, i), jnp.arange(n), batch_size=min(chunk, n))

    return scores


def unadapted(adapt: Adapt) -> Adapt:
    """An adaptation that leaves the model as it is, for scores before adapting."""
    return adapt._replace(apply=lambda meta, support, hyper: adapt.start(meta))


def _support_and_query(
    tasks: Tasks, shots: int, queries: int | None
) -> Callable[[Key, Int[Array, ""]], tuple[Samples, Samples]]:
    """(key, task) -> `shots` of its samples, and `queries` others or all others with a mask."""

    def parts(i: Int[Array, ""], drawn: PyTree) -> tuple[Samples, Samples]:
        cut = lambda at: tasks.fetch(i[None], jax.tree.map(lambda x: x[:, at], drawn))
        first = lambda samples: jax.tree.map(lambda x: x[0], samples)
        return first(cut(slice(shots))), first(cut(slice(shots, None)))

    if queries is not None:
        return lambda key, i: parts(i, tasks.draw(key, i[None], shots + queries))
    if tasks.n is None or tasks.sizes is None:
        raise ConfigError("to score on all other samples, tasks must have sizes")
    sizes = tasks.sizes
    place = jnp.arange(int(jnp.max(sizes(jnp.arange(tasks.n)))), dtype=jnp.int32)

    def all_others(key: Key, i: Int[Array, ""]) -> tuple[Samples, Samples]:
        size = sizes(i[None])[0]
        rows = shuffled(key, size, len(place))
        support, query = parts(i, jnp.where(place < size, rows, rows[0])[None])
        return support, query._replace(mask=place[shots:] < size)

    return all_others


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
    check_loss(loss, learner.params, tasks, shots)
    if queries is None:
        queries = 100 if tasks.least is None else tasks.least - shots
    check_count("queries", queries)
    steps = learner.method.inner_steps if steps is None else check_count("steps", steps)
    adapt = learner.method.adaptation(steps)
    score = errors_on(loss, adapt, tasks, jax.random.key(seed), shots=shots, queries=queries)
    return jax.jit(score)(learner.meta, learner.hyper)
