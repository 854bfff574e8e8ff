"""MOML v2's theoretical step sizes, and the constants they ask for."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from moml.errors import ConfigError
from moml.tasks.sampler import specs_in
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


class Constants(NamedTuple):
    """The constants of the theorem's assumptions, over all tasks and models."""

    smoothness: float  # L, of the gradients
    hessian_lipschitz: float  # rho, of the Hessians
    gradient_noise: float = 0.0  # sigma_G, the standard deviation of one sample's gradient
    hessian_noise: float = 0.0  # sigma_H, that of its Hessian
    dissimilarity: float = 0.0  # gamma_G, the standard deviation of a task's gradient


def theoretical_steps(
    algorithm: Algorithm,
    loss: Loss,
    need: SampleSpec,
    *,
    constants: Constants,
    n: int,
    eta0: float,
    alpha: float,
) -> Algorithm:
    """Wrap v2 so that eta and beta follow its theorem, and hold to its conditions.

        eta_t = eta0 / Lhat(w_t),  Lhat(w) = 4 L + (2 rho alpha / |B_L|) sum |grad L_i(w)|
        beta_t = 6 L^2 eta0^(-1/3) eta_{t-1}              (at the first step with that step's eta)

    on a task batch B_L and samples of its own (`need`, its support). The paper writes eta_0 for the
    constant, and for the first step size too. For plain parameters as meta. `hyper.eta`,
    `hyper.beta` and `hyper.alpha` are not used.

    Parameters
    ----------
    algorithm
        v2's, of n tasks.
    need
        The tasks and samples that measure gradients, B_L and S_L.
    constants
        Of the assumptions; `estimate_smoothness` measures the first two.
    eta0, alpha
        Refused with `ConfigError` outside the theorem's conditions, see `theorem_conditions`.

    Returns
    -------
    Algorithm
        The same method with these step sizes.
    """
    L, rho = constants.smoothness, constants.hessian_lipschitz
    memory = specs_in(algorithm.needs)[0]
    conditions = theorem_conditions(
        constants, alpha=alpha, k=memory.support, n=n, tasks_per_step=memory.tasks
    )
    conditions.check(eta0, alpha, need)

    def norm_of_gradient(meta: Meta, samples: Samples) -> Float[Array, ""]:
        return optax.tree.norm(jax.grad(loss)(meta, samples))

    def init(params: Params, hyper: Hyper) -> TheoryState:
        inner = algorithm.init(params, hyper)
        dtype = jnp.result_type(*jax.tree.leaves(inner.meta))
        return TheoryState(inner, jnp.full((), jnp.nan, dtype))

    def step(state: TheoryState, visits: Theory, hyper: Hyper) -> tuple[TheoryState, Info]:
        extra: TaskBatch = visits.lipschitz
        norms = jax.vmap(lambda s: norm_of_gradient(state.inner.meta, s))(extra.task.support)
        eta = eta0 / (4 * L + 2 * rho * alpha * jnp.mean(norms))
        last = jnp.where(jnp.isnan(state.eta), eta, state.eta)
        beta = 6 * L**2 * eta0 ** (-1 / 3) * last
        used = hyper._replace(eta=eta, beta=beta, alpha=jnp.asarray(alpha, eta.dtype))
        inner, info = algorithm.step(state.inner, visits.visits, used)
        return TheoryState(inner, eta), info

    write, needs = algorithm.fill, Theory(algorithm.needs, need)
    fill = write and (lambda s, visit, hyper: s._replace(inner=write(s.inner, visit, hyper)))
    return algorithm._replace(init=init, step=step, needs=needs, fill=fill)


class Conditions(NamedTuple):
    """What v2's theorem asks for."""

    alpha: float  # an upper bound, not reached
    eta0: dict[str, float]  # upper bounds by their formulas; the least of them counts
    tasks: int  # the least (n - 1) B_L / (n - B_L)
    samples: int  # the least S_L
    n: int

    @property
    def largest_eta0(self) -> float:
        """The least of the upper bounds on eta_0."""
        return min(self.eta0.values())

    def check(self, eta0: float, alpha: float, need: SampleSpec) -> None:
        """Raise `ConfigError` that names every condition that is not met, and what was given."""
        spread = (self.n - 1) * need.tasks / (self.n - need.tasks) if need.tasks < self.n else None
        broken = []
        if not 0 < eta0 <= self.largest_eta0:
            least = min(self.eta0, key=self.eta0.__getitem__)
            bounds = ", ".join(f"{text} = {value:.3g}" for text, value in self.eta0.items())
            broken.append(
                f"eta_0 must be in (0, {self.largest_eta0:.3g}], by {least} (of {bounds}); "
                f"got {eta0:g}"
            )
        if not 0 <= alpha < self.alpha:
            broken.append(
                f"alpha must be in [0, {self.alpha:.3g}), (sqrt(2) - 1) / L; got {alpha:g}"
            )
        if spread is not None and spread < self.tasks:
            broken.append(
                f"(n - 1) B_L / (n - B_L) must be at least {self.tasks}, "
                f"(8 rho alpha gamma_G / L)^2; got {spread:.3g} with B_L = {need.tasks} "
                f"of n = {self.n}"
            )
        if need.support < self.samples:
            broken.append(
                f"S_L must be at least {self.samples}, (8 rho alpha sigma_G / L)^2; "
                f"got {need.support}"
            )
        if broken:
            raise ConfigError("outside the theorem of MOML v2: " + "; ".join(broken))


def theorem_conditions(
    constants: Constants, *, alpha: float, k: int, n: int, tasks_per_step: int
) -> Conditions:
    """The conditions of v2's theorem: those of the lemmas that its proof rests on.

    With C_p = n / B - 1 and the paper's C_1, C_3, C_4, C_6, C_7, C_9 (its appendix on v2)

        eta_0 <= (1 / 3L)^(3/2), (3 L^2 / C_3 C_6)^(3/2), 2 L^2 / 5 C_3, 1 / 8 C_9^(3/2), 1 / 20 C_4

    Parameters
    ----------
    constants
        Of the assumptions.
    alpha, k, n, tasks_per_step
        Inner step size; samples in each of S1, S2, S3; tasks; those of a memory batch.

    Returns
    -------
    Conditions
        Upper bounds on alpha and eta_0, lower ones on B_L and S_L.

    >>> asked = theorem_conditions(Constants(1.0, 0.0), alpha=0.1, k=1, n=20, tasks_per_step=20)
    >>> round(asked.alpha, 3), round(asked.largest_eta0, 4)
    (0.414, 0.003)
    """
    L, rho, sigma_g, sigma_h, gamma = constants
    n_over_b, a = n / tasks_per_step - 1, min(alpha, (math.sqrt(2) - 1) / L * (1 - 1e-9))
    c1 = 1 / (1 - 2 * a * L - (a * L) ** 2)
    moved = (1 + a * L) ** 2 + (a * sigma_h) ** 2 / k
    c3, c4 = 2 * L**2 * moved, 4 * moved * (1 + a * L) ** 2 * c1
    c6 = (4 * (1 + a * L) ** 2 + a**2 * L * n_over_b) / (3 * L**2)
    c9 = 18 * L**3 * a**2 * n_over_b * c1**2 + c4 * c6
    return Conditions(
        alpha=(math.sqrt(2) - 1) / L,
        eta0={
            "(1 / 3L)^(3/2)": (1 / (3 * L)) ** 1.5,
            "(3 L^2 / C_3 C_6)^(3/2)": (3 * L**2 / (c3 * c6)) ** 1.5,
            "2 L^2 / 5 C_3": 2 * L**2 / (5 * c3),
            "1 / 8 C_9^(3/2)": 1 / (8 * c9**1.5),
            "1 / 20 C_4": 1 / (20 * c4),
        },
        tasks=math.ceil((8 * rho * alpha * gamma / L) ** 2),
        samples=math.ceil((8 * rho * alpha * sigma_g / L) ** 2),
        n=n,
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
