"""Twenty non-convex logistic tasks on which grad F is exact, and a wrapper that sums iterates."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int, PyTree

from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.single.diagnostics import diagnose, samples_of
from moml.algorithms.single.theory import estimate_smoothness
from moml.models import mse
from moml.tasks.arrays import from_arrays
from moml.types import Algorithm, Hyper, Info, Key, Meta, Params, SampleSpec, TaskBatch, Tasks

N, M, D, SCALE = 20, 100, 10, 2.0
LOSS = mse(lambda w, x: jax.nn.sigmoid(x @ w))
ADAPT = gradient_steps(LOSS)


def logistic(key: Key) -> Tasks:
    """x ~ 2 N(0, I), w_i ~ 2 N(0, I); a label is 1 with probability sigmoid(w_i . x), else 0.

    S1, S2 and S3 are drawn with replacement, independent as the theorem has them. Without it they
    would be disjoint, and so correlated by 1 / 99: a bias of its own, |grad F|^2 about 1e-5.
    """
    of_x, of_w, of_y = jax.random.split(key, 3)
    x = SCALE * jax.random.normal(of_x, (N, M, D))
    w = SCALE * jax.random.normal(of_w, (N, D))
    chance = jax.nn.sigmoid(jnp.einsum("nmd,nd->nm", x, w))
    tasks = from_arrays(x, (jax.random.uniform(of_y, (N, M)) < chance).astype(x.dtype))
    rows = lambda _, key, ids, size: jax.random.randint(key, (len(ids), size), 0, M, jnp.int32)
    return replace(tasks, draw_from=rows)


class Watched(NamedTuple):
    """A method's state, the sum of its iterates, and what the last step started from."""

    inner: PyTree
    total: Meta
    before: Meta
    ids: Int[Array, " tasks"]

    @property
    def meta(self) -> Meta:
        """The meta-model."""
        return self.inner.meta

    @property
    def memory(self) -> PyTree:
        """The store of all tasks' memories; the theorem's step sizes wrap it once more."""
        return getattr(self.inner, "inner", self.inner).memory


def watched(algorithm: Algorithm) -> Algorithm:
    """The same method, summing w_1 ... w_t: two such sums give the average of any span of steps."""
    a_visit = {"is_leaf": lambda x: isinstance(x, SampleSpec | TaskBatch)}

    def init(params: Params, hyper: Hyper) -> Watched:
        inner, need = algorithm.init(params, hyper), jax.tree.leaves(algorithm.needs, **a_visit)[0]
        total = jax.tree.map(jnp.zeros_like, inner.meta)
        return Watched(inner, total, inner.meta, jnp.zeros(need.tasks, jnp.int32))

    def step(state: Watched, visits: PyTree, hyper: Hyper) -> tuple[Watched, Info]:
        inner, info = algorithm.step(state.inner, visits, hyper)
        total = jax.tree.map(jnp.add, state.total, inner.meta)
        ids = jax.tree.leaves(visits, **a_visit)[0].ids  # of those whose memory moved
        return Watched(inner, total, state.inner.meta, ids), info

    return algorithm._replace(init=init, step=step, fill=None)


class Problem(NamedTuple):
    """The tasks, their constants at w = 0 where every run starts, and grad F of many models."""

    tasks: Tasks
    smoothness: float
    hessian_lipschitz: float
    grad: Callable[[ArrayLike], Array]  # grad F, [models, d] -> [models, d]


def problem(key: Key) -> Problem:
    """Draw the tasks and estimate L and rho."""
    tasks = logistic(key)
    exact = diagnose(LOSS, ADAPT, N, samples_of(tasks))
    grad = jax.grad(lambda w: exact(w, Hyper(eta=1.0, alpha=1.0)).objective)
    data = tasks.fetch(jnp.arange(N), jnp.tile(jnp.arange(M), (N, 1)))
    constants = jax.jit(partial(estimate_smoothness, LOSS))
    smooth, rho = constants(jnp.zeros(D), data, jax.random.fold_in(key, 1))
    return Problem(tasks, float(smooth), float(rho), jax.jit(jax.vmap(grad)))
