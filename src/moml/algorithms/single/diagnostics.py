"""What the theory speaks of, measured: F(w), the stationarity gap, the memory's tracking error.

Exact on tasks with finite data; on endless tasks from many drawn samples. Tasks are taken in chunks
and their parts recomputed on the way back, so n may be large.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from moml.algorithms.parts.task_map import in_batches
from moml.errors import ConfigError
from moml.types import Adapt, Hyper, Key, Loss, Memory, Meta, Tasks

# id -> data to adapt on, data to score on
Samples = Callable[[Int[Array, ""]], tuple[PyTree, PyTree]]


class Diagnosis(NamedTuple):
    """At one meta-model: the objective, and the squared norm of its gradient."""

    objective: Float[Array, ""]
    gap: Float[Array, ""]


def samples_of(tasks: Tasks, key: Key | None = None, size: int = 100) -> Samples:
    """All the data of a finite task, for both roles; else `size` drawn samples for each of them."""
    if tasks.full_from is not None and key is None:
        return lambda i: (jax.tree.map(lambda x: x[0], tasks.full(i[None])),) * 2
    if key is None:
        raise ConfigError("these tasks have no finite data: give a key, and samples are drawn")

    def drawn(i: Int[Array, ""]) -> tuple[PyTree, PyTree]:
        keys = jax.random.split(jax.random.fold_in(key, i))
        one = lambda k: tasks.fetch(i[None], tasks.draw(k, i[None], size))
        inner, outer = (jax.tree.map(lambda x: x[0], one(k)) for k in keys)
        return inner, outer

    return drawn


def diagnose(
    loss: Loss, adapt: Adapt, n: int, samples: Samples, *, chunk: int = 256
) -> Callable[[Meta, Hyper], Diagnosis]:
    """F(w) = 1/n sum_i L_i(A(w; D_i)) and |grad F(w)|^2."""

    def F(meta: Meta, hyper: Hyper) -> Float[Array, ""]:
        @jax.checkpoint
        def one(i: Int[Array, ""]) -> Float[Array, ""]:
            inner, outer = samples(i)
            return loss(adapt.merge(meta, adapt.apply(meta, inner, hyper)), outer)

        return jnp.mean(in_batches(one, jnp.arange(n), chunk))

    def diagnosis(meta: Meta, hyper: Hyper) -> Diagnosis:
        value, grad = jax.value_and_grad(F)(meta, hyper)
        return Diagnosis(value, optax.tree.norm(grad, squared=True))

    return diagnosis


def tracking_error(
    adapt: Adapt, memory: Memory, samples: Samples, *, chunk: int = 256
) -> Callable[..., Float[Array, ""]]:
    """mean_i |u_i - v_i(w)|^2 over `ids`, from (store after a step, w before it, ids, hyper).

    With the ids of the step's own batch this is v1's reading in the paper's lemma, with all n v2's.
    Tasks that were never visited have no memory and do not count.
    """

    def error(
        store: PyTree, meta: Meta, ids: Int[Array, " tasks"], hyper: Hyper
    ) -> Float[Array, ""]:
        def one(i: Int[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
            u, known = jax.tree.map(lambda x: x[0], memory.recall(store, i[None]))
            v = adapt.apply(meta, samples(i)[0], hyper)  # v_i(w)
            return optax.tree.norm(optax.tree.sub(u, v), squared=True), known

        errors, known = in_batches(one, ids, chunk)
        return jnp.sum(jnp.where(known, errors, 0)) / jnp.sum(known.astype(errors.dtype))

    return error
