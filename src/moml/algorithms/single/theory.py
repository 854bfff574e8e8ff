"""MOML v2's theoretical step sizes, and the constants they ask for."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from moml.errors import ConfigError
from moml.types import (
    Algorithm,
    Hyper,
    Info,
    Key,
    Loss,
    Meta,
    Params,
    Samples,
    SampleSpec,
    TaskBatch,
)


class Theory(NamedTuple):
    """The method's own visits, and the extra ones that measure gradients."""

    visits: PyTree
    lipschitz: PyTree


class TheoryState(NamedTuple):
    """The method's own state, and eta_{t-1} (not a number before the first step)."""

    inner: PyTree
    eta: Float[Array, ""]

    @property
    def meta(self) -> Meta:
        """The meta-model, where every state has it."""
        return self.inner.meta


def theoretical_steps(
    algorithm: Algorithm,
    loss: Loss,
    need: SampleSpec,
    *,
    smoothness: float,
    hessian_lipschitz: float,
) -> Algorithm:
    """Wrap v2 so that eta and beta follow its theorem; its constant c is given as `hyper.eta`.

        eta_t = c / Lhat(w_t),  Lhat(w) = 4 L + (2 rho alpha / |B_L|) sum |grad L_i(w)|
        beta_t = 6 L^2 c^(-1/3) eta_{t-1}                 (at the first step with that step's eta)

    on a task batch and samples of its own (`need`, its support). The paper writes eta_0 for c, and
    for the first step size too. For plain parameters as meta. See `check_eta0`.
    """
    L, rho = smoothness, hessian_lipschitz

    def norm_of_gradient(meta: Meta, samples: Samples) -> Float[Array, ""]:
        return optax.tree.norm(jax.grad(loss)(meta, samples))

    def init(params: Params, hyper: Hyper) -> TheoryState:
        inner = algorithm.init(params, hyper)
        dtype = jnp.result_type(*jax.tree.leaves(inner.meta))
        return TheoryState(inner, jnp.full((), jnp.nan, dtype))

    def step(state: TheoryState, visits: Theory, hyper: Hyper) -> tuple[TheoryState, Info]:
        extra: TaskBatch = visits.lipschitz
        norms = jax.vmap(lambda s: norm_of_gradient(state.inner.meta, s))(extra.task.support)
        lhat = 4 * L + 2 * rho * hyper.alpha * jnp.mean(norms)
        eta = hyper.eta / lhat
        last = jnp.where(jnp.isnan(state.eta), eta, state.eta)
        beta = 6 * L**2 * jnp.cbrt(hyper.eta) ** -1 * last
        inner, info = algorithm.step(
            state.inner, visits.visits, hyper._replace(eta=eta, beta=beta.astype(eta.dtype))
        )
        return TheoryState(inner, eta), info

    write, needs = algorithm.fill, Theory(algorithm.needs, need)
    fill = write and (lambda s, visit, hyper: s._replace(inner=write(s.inner, visit, hyper)))
    return algorithm._replace(init=init, step=step, needs=needs, fill=fill)


def largest_eta0(smoothness: float) -> float:
    """The theorem's bound on eta_0: (1 / (3 L))^(3/2); beta_t is then at most 1/2."""
    return (1 / (3 * smoothness)) ** 1.5


def check_eta0(eta0: float, smoothness: float) -> None:
    """Refuse an eta_0 whose beta_t could pass 1: beta_t <= 6 L^2 eta_0^(2/3) / (4 L)."""
    worst = 1.5 * smoothness * eta0 ** (2 / 3)
    if worst > 1:
        raise ConfigError(
            f"eta_0 = {eta0:g} with L = {smoothness:g} lets beta reach {worst:.3g}; beta must stay "
            f"in (0, 1], and the theorem asks for eta_0 <= {largest_eta0(smoothness):.3g}"
        )


def estimate_smoothness(
    loss: Loss, params: Params, batches: PyTree, key: Key, *, steps: int = 30, radius: float = 0.1
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """L and rho near `params`, over tasks stacked in `batches`, by power iteration.

    L: the largest |eigenvalue| of a task's Hessian, `steps` products with it. rho: the same of the
    difference of two Hessians at a random distance `radius`, over that distance. Both are the
    worst over the tasks, local, and so lower bounds of what the theorem means.
    """

    normal = lambda key: optax.tree.random_like(key, params)
    unit = lambda x: optax.tree.scale(1 / jnp.maximum(optax.tree.norm(x), 1e-30), x)

    def spectral_norm(matvec: PyTree, key: Key) -> Float[Array, ""]:
        start = unit(normal(key))
        v, _ = jax.lax.scan(lambda v, _: (unit(matvec(v)), None), start, length=steps)
        return optax.tree.norm(matvec(v))

    def one(samples: Samples, key: Key) -> tuple[Float[Array, ""], Float[Array, ""]]:
        keys = jax.random.split(key, 3)
        grad = lambda w: jax.grad(loss)(w, samples)
        near = optax.tree.add(params, optax.tree.scale(radius, unit(normal(keys[0]))))
        at = lambda w: lambda v: jax.jvp(grad, (w,), (v,))[1]
        change = lambda v: optax.tree.sub(at(near)(v), at(params)(v))
        return spectral_norm(at(params), keys[1]), spectral_norm(change, keys[2]) / radius

    tasks = jax.tree.leaves(batches)[0].shape[0]
    smooth, rho = jax.vmap(one)(batches, jax.random.split(key, tasks))
    return jnp.max(smooth), jnp.max(rho)
