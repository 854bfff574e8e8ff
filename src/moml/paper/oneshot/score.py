"""The two tests of one-shot classification: reset before every episode, or go on learning."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from moml.paper.oneshot.tasks import Problem
from moml.types import Adapt, Batch, Hyper, Key, Meta, Tasks

EPISODES, TEST = 100, 31  # of a test task; seed of what they draw
Episode = tuple[Batch, Batch]


def episode(tasks: Tasks, key: Key, task: Int[Array, ""]) -> Episode:
    """One image a class to adapt on, another to ask about."""
    drawn = tasks.draw(key, task[None], 2)
    part = lambda cut: jax.tree.map(
        lambda x: x[0], tasks.fetch(task[None], jax.tree.map(lambda x: x[:, cut], drawn))
    )
    return part(slice(1)), part(slice(1, None))


def accuracies(
    problem: Problem, adapt: Adapt, *, keeps_learning: bool, count: int = EPISODES
) -> Callable[[Meta, Hyper], Float[Array, "tasks episodes"]]:
    """The accuracy of every episode of every test task, in percent.

    Strict: each episode starts from the meta-model. With `keeps_learning` each starts from where
    the one before ended, as in the released test; the meta-model is then plain parameters.
    """
    tasks, right = problem.test, problem.right
    n = tasks.n or 0

    def answer(meta: Meta, key: Key, task: Int[Array, ""], hyper: Hyper) -> Any:
        support, query = episode(tasks, key, task)
        mine = adapt.merge(meta, adapt.apply(meta, support, hyper))
        return mine, right(mine, query)

    def of_task(meta: Meta, task: Int[Array, ""], hyper: Hyper) -> Float[Array, " episodes"]:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(TEST), task), count)
        if keeps_learning:
            return jax.lax.scan(lambda now, key: answer(now, key, task, hyper), meta, keys)[1]
        alone = lambda key: answer(meta, key, task, hyper)[1]
        return jax.lax.map(alone, keys, batch_size=min(count, 10))

    def each(meta: Meta, hyper: Hyper) -> Float[Array, "tasks episodes"]:
        return jax.vmap(of_task, (None, 0, None))(meta, jnp.arange(n, dtype=jnp.int32), hyper)

    return each


def nearest_image(problem: Problem) -> Callable[[], Float[Array, ""]]:
    """A control that learns nothing: every query is the class of the support image nearest to it.

    Squared distance of the pixels, the strict test's episodes.
    """
    tasks = problem.test

    def one(key: Key, task: Int[Array, ""]) -> Float[Array, ""]:
        support, query = episode(tasks, key, task)
        s, q = (batch.x.reshape(len(batch.x), -1) for batch in (support, query))
        near = jnp.argmin(jnp.sum(s**2, 1)[None] - 2 * q @ s.T, axis=1)
        right = support.y[near] == query.y
        return 100 * jnp.mean(right.astype(q.dtype))

    def whole() -> Float[Array, ""]:
        ids = jnp.arange(tasks.n or 0, dtype=jnp.int32)
        keys = jax.vmap(
            lambda i: jax.random.split(jax.random.fold_in(jax.random.key(TEST), i), EPISODES)
        )(ids)
        of_task = lambda keys, i: jnp.mean(jax.lax.map(lambda key: one(key, i), keys))
        return jnp.mean(jax.vmap(of_task)(keys, ids))

    return jax.jit(whole)
