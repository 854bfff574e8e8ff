"""Non-convex logistic tasks on which grad F is exact, and a wrapper that sums iterates."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int, PyTree

from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.single.diagnostics import diagnose, samples_of
from moml.algorithms.single.theory import Constants, estimate_smoothness
from moml.models import mse
from moml.tasks.arrays import from_arrays
from moml.types import (
    Algorithm,
    Batch,
    Hyper,
    Info,
    Key,
    Meta,
    Params,
    SampleSpec,
    TaskBatch,
    Tasks,
)

N, M, D, SCALE = 20, 100, 10, 2.0
LOSS = mse(lambda w, x: jax.nn.sigmoid(x @ w))
ADAPT = gradient_steps(LOSS)


def logistic(key: Key, n: int = N) -> Tasks:
    """n tasks: x, w_i ~ 2 N(0, I); a label is 1 with probability sigmoid(w_i . x), else 0.

    S1, S2 and S3 are drawn with replacement, independent as the theorem has them. Without it they
    would be disjoint, and so correlated by 1 / 99: a bias of its own, |grad F|^2 about 1e-5.
    """
    of_x, of_w, of_y = jax.random.split(key, 3)
    x = SCALE * jax.random.normal(of_x, (n, M, D))
    w = SCALE * jax.random.normal(of_w, (n, D))
    chance = jax.nn.sigmoid(jnp.einsum("nmd,nd->nm", x, w))
    tasks = from_arrays(x, (jax.random.uniform(of_y, (n, M)) < chance).astype(x.dtype))
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
    constants: Constants
    grad: Callable[[ArrayLike, float], Array]  # grad F at an alpha, [models, d] -> [models, d]


def problem(key: Key, n: int = N) -> Problem:
    """Draw the tasks and estimate the constants of the theorems' assumptions."""
    tasks = logistic(key, n)
    exact = diagnose(LOSS, ADAPT, n, samples_of(tasks))
    grad = jax.grad(lambda w, alpha: exact(w, Hyper(eta=1.0, alpha=alpha)).objective)
    data = tasks.fetch(jnp.arange(n), jnp.tile(jnp.arange(M), (n, 1)))
    w, key = jnp.zeros(D), jax.random.fold_in(key, 1)
    smooth, rho = jax.jit(partial(estimate_smoothness, LOSS))(w, data, key)
    constants = Constants(float(smooth), float(rho), *map(float, jax.jit(noises)(w, data)))
    return Problem(tasks, constants, jax.jit(jax.vmap(grad, (0, None))))


def noises(w: Params, data: Batch) -> tuple[Array, Array, Array]:
    """sigma_G and sigma_H, the worst over the tasks, and gamma_G."""
    one = lambda w, x, y: LOSS(w, Batch(x[None], y[None]))
    each = lambda f: jax.vmap(jax.vmap(f, (None, 0, 0)), (None, 0, 0))(w, data.x, data.y)
    grads, hessians = each(jax.grad(one)), each(jax.hessian(one))
    mean = jnp.mean(grads, axis=1, keepdims=True)
    apart = hessians - jnp.mean(hessians, axis=1, keepdims=True)
    squares = (
        jnp.sum((grads - mean) ** 2, axis=-1),
        jnp.linalg.norm(apart, ord=2, axis=(-2, -1)) ** 2,
    )
    sigma_g, sigma_h = (jnp.sqrt(jnp.max(jnp.mean(square, axis=1))) for square in squares)
    apart = mean - jnp.mean(mean, axis=0, keepdims=True)
    return sigma_g, sigma_h, jnp.sqrt(jnp.mean(jnp.sum(apart**2, axis=-1)))
