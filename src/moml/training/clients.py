"""Scores of clients' models, each on all test samples of its client.

Three models of a client are compared: the common one, the one it keeps (or the common one after
fine-tuning on its training samples), and the common one after a few samples (`evaluate.scores_on`).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from jaxtyping import Array, Bool, Float, Int

from moml.algorithms.method import Method
from moml.algorithms.parts.adapt import Leaves
from moml.algorithms.parts.task_map import in_batches
from moml.algorithms.signature import Adaptation
from moml.kept import kept
from moml.training.evaluate import Score
from moml.training.personal import Tuning, common_model, fine_tuned, kept_model, parts_that_keep
from moml.types import Key, Loss, Meta, Params, Rounds, Scalar, State, Tasks

Ids = Int[Array | np.ndarray, " clients"]
Each = Float[Array, " clients"]
Kept = Callable[[Meta, State, Tasks, Ids], tuple[Each, Bool[Array, " clients"]]]


class ClientScores(NamedTuple):
    """How clients are scored: on which samples of theirs, by what, how many side by side."""

    tested: Tasks
    score: Score
    chunk: int


def _on_all(score: Score, params: Params, tasks: Tasks, i: Int[Array, ""]) -> Array:
    """The score of a model on all test samples of client i."""
    own = jax.tree.map(lambda x: x[0], tasks.full(i[None]))
    return score(params, own, own)


def kept_scores(method: Method, by: ClientScores) -> Kept | None:
    """(w, store, tested, ids) -> the score of what each client keeps, and who has been in a round.

    Row j of the store is that of client ids[j]. None where clients keep no model.
    """
    parts = parts_that_keep(method)
    if parts is None:
        return None
    return _kept_scores(parts, method.adaptation, method.inner_steps, by.score, by.chunk)


@kept
def _kept_scores(
    parts: Rounds, adaptation: Adaptation, steps: int, score: Score, chunk: int
) -> Kept:
    model = kept_model(parts, adaptation(steps))

    def scores(
        meta: Meta, store: State, tasks: Tasks, ids: Ids
    ) -> tuple[Each, Bool[Array, " clients"]]:
        def one(at: tuple[Array, Array]) -> tuple[Array, Array]:
            params, known = model(meta, store, at[0])
            return _on_all(score, params, tasks, at[1]), known

        return in_batches(one, (jnp.arange(len(ids), dtype=jnp.int32), jnp.asarray(ids)), chunk)

    return scores


def common_scores(method: Method, by: ClientScores) -> Wrapped:
    """Jitted (w, tested) -> the score of the common model on each client."""
    return _common_scores(method.adaptation, method.inner_steps, by.score, by.chunk)


@kept
def _common_scores(adaptation: Adaptation, steps: int, score: Score, chunk: int) -> Wrapped:
    adapt = adaptation(steps)

    def scores(meta: Meta, tasks: Tasks) -> Each:
        params, ids = common_model(adapt, meta), jnp.arange(tasks.n or 0)
        return in_batches(lambda i: _on_all(score, params, tasks, i), ids, chunk)

    return jax.jit(scores)


def tuned_scores(method: Method, by: ClientScores, tuning: Tuning, leaves: Leaves) -> Wrapped:
    """Jitted (w, trained, tested, key, rate, ids) -> scores after fine-tuning, of these clients."""
    return _tuned_scores(
        method.adaptation, method.inner_steps, by.score, by.chunk, tuning.loss, leaves,
        tuning.epochs, tuning.batch_size,
    )  # fmt: skip


@kept
def _tuned_scores(
    adaptation: Adaptation,
    steps: int,
    score: Score,
    chunk: int,
    loss: Loss,
    leaves: Leaves,
    epochs: int,
    batch_size: int,
) -> Wrapped:
    adapt, tune = adaptation(steps), fine_tuned(loss, leaves, epochs, batch_size)

    def scores(meta: Meta, trained: Tasks, tasks: Tasks, key: Key, rate: Scalar, ids: Ids) -> Each:
        start = common_model(adapt, meta)

        def one(i: Array) -> Array:
            return _on_all(score, tune(start, trained, key, i, rate), tasks, i)

        # Clients side by side go on until the last of them is done: like sizes together.
        order = jnp.argsort(trained.sizes(jnp.asarray(ids)))
        found = in_batches(one, jnp.asarray(ids)[order], chunk)
        return jnp.zeros_like(found).at[order].set(found)

    return jax.jit(scores)


def kept_each(
    program: Kept, meta: Meta, tested: Tasks, stores: Iterable[tuple[Ids, State]]
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """The scores of all clients' own models, and who has one; `stores` has their rows in parts."""
    each, known = np.full(tested.n or 0, np.nan), np.zeros(tested.n or 0, bool)
    for ids, store in stores:
        values, has = map(np.asarray, program(meta, store, tested, np.asarray(ids, np.int32)))
        each[ids[has]], known[ids[has]] = values[has], True
    return each, known


def mean_of_known(each: Float[Array, " n"], known: Bool[Array, " n"]) -> Float[Array, ""]:
    """The mean over the clients that keep a model; not a number where there is none."""
    count = jnp.sum(known).astype(each.dtype)
    return jnp.sum(jnp.where(known, each, jnp.zeros_like(each))) / count
