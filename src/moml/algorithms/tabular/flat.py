"""Members as vectors, and their training step by plain differentiation: little to compile."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from moml.algorithms.parts.optimizer import Optimizer, optimizer_step, transformation
from moml.algorithms.parts.task_map import norm
from moml.algorithms.single.engine import State
from moml.types import (
    Adapt,
    Algorithm,
    Hyper,
    Info,
    Loss,
    Meta,
    Params,
    Personal,
    Samples,
    SampleSpec,
    Task,
    TaskBatch,
)

Vector = Float[Array, " P"]


class Flat(NamedTuple):
    """A tree of arrays as one vector, filled with zeros to a power of two."""

    ravel: Callable[[PyTree], Vector]
    tree: Callable[[Float[Array, "*members P"] | np.ndarray], PyTree]  # leaves [*members, ...]
    size: int


def flat_like(like: PyTree, least: int = 1) -> Flat:
    """Vectors of `least` numbers or more for trees with these shapes.

    >>> flat = flat_like({"a": jnp.ones((2, 2)), "b": jnp.zeros(())})
    >>> flat.ravel({"a": jnp.ones((2, 2)), "b": jnp.zeros(())}).tolist()
    [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    leaves, tree = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves]).tolist()
    size = 1 << max(0, max(ends[-1], least) - 1).bit_length()
    dtype = jnp.result_type(*leaves)

    def ravel(given: PyTree) -> Vector:
        parts = [jnp.ravel(leaf).astype(dtype) for leaf in jax.tree.leaves(given)]
        return jnp.concatenate([*parts, jnp.zeros(size - ends[-1], dtype)])

    def back(vector: Float[Array, "*members P"] | np.ndarray) -> PyTree:
        parts = [
            vector[..., end - math.prod(leaf.shape) : end]
            .reshape(*vector.shape[:-1], *leaf.shape)
            .astype(leaf.dtype)
            for leaf, end in zip(leaves, ends, strict=True)
        ]
        return jax.tree.unflatten(tree, parts)

    return Flat(ravel, back, size)


def on_vectors(adapt: Adapt, flat: Flat) -> Adapt:
    """The same adaptation of meta-parameters that are one vector: one update for all of them."""

    def init(params: Params, hyper: Hyper) -> Vector:
        return flat.ravel(adapt.init(params, hyper))

    def start(meta: Vector) -> Personal:
        return adapt.start(flat.tree(meta))

    def apply(meta: Vector, samples: Samples, hyper: Hyper) -> Personal:
        return adapt.apply(flat.tree(meta), samples, hyper)

    def merge(meta: Vector, p: Personal) -> Params:
        return adapt.merge(flat.tree(meta), p)

    return Adapt(init, start, apply, merge)


def without_memory(loss: Loss, adapt: Adapt, optimizer: Optimizer, need: SampleSpec) -> Algorithm:
    """MAML by plain differentiation of the mean over the tasks, L(w) = mean_i L_S3(A(w; S1)).

    Equal to the method `maml`, which differentiates task by task, as a memory needs it.
    """

    def init(params: Params, hyper: Hyper) -> State:
        meta = adapt.init(params, hyper)
        return State(meta, (), transformation(optimizer, hyper).init(meta))

    def step(state: State, visit: TaskBatch, hyper: Hyper) -> tuple[State, Info]:
        def one(meta: Meta, task: Task) -> Float[Array, ""]:
            return loss(adapt.merge(meta, adapt.apply(meta, task.support, hyper)), task.query)

        def mean(meta: Meta) -> Float[Array, ""]:
            return jnp.mean(jax.vmap(lambda task: one(meta, task))(visit.task))

        value, delta = jax.value_and_grad(mean)(state.meta)
        meta, kept = optimizer_step(optimizer, state.meta, state.optimizer, delta, hyper)
        return State(meta, (), kept), Info(value, norm(delta))

    return Algorithm(init, step, need)
