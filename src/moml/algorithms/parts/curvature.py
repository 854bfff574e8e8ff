"""How the inner gradient is differentiated.

A curvature turns `loss(p, rest, samples)` into its gradient in p, as a function that `jax.vjp` can
pull back through. Only the derivative of that gradient changes from one to the next:

    exact              H c                                       two backward passes, no Hessian
    first_order        0                                         J_A = I
    finite_difference  (g(p + d c) - g(p - d c)) / 2 d           two gradients (HF-MAML)
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from moml.algorithms.parts.task_map import in_common_type

SplitLoss = Callable[[PyTree, PyTree, PyTree], PyTree]  # loss(p, rest, samples)
Curvature = Callable[[SplitLoss], Callable[[PyTree, PyTree, PyTree], PyTree]]


def exact(loss: SplitLoss) -> SplitLoss:
    """The gradient, differentiable as often as the loss is."""
    return jax.grad(loss)


def first_order(loss: SplitLoss) -> SplitLoss:
    """The gradient, held constant: the Hessian term vanishes."""
    return lambda p, rest, samples: jax.lax.stop_gradient(jax.grad(loss)(p, rest, samples))


def finite_difference(delta: float = 1e-3) -> Curvature:
    """Curvature from two more gradients, at a distance `delta` along the direction asked for.

    The direction is normalised first, so that `delta` is a length in parameter space; without that
    single precision loses the difference. By symmetry of second derivatives

        [H c]  =  d/ds  grad L(p + s c, rest)  at s = 0,      over p and rest alike.
    """

    def curvature(loss: SplitLoss) -> SplitLoss:
        @jax.custom_vjp
        def grad(p: PyTree, rest: PyTree, samples: PyTree) -> PyTree:
            return jax.grad(loss)(p, rest, samples)

        def forward(p: PyTree, rest: PyTree, samples: PyTree) -> tuple[PyTree, PyTree]:
            return grad(p, rest, samples), (p, rest, samples)

        def backward(saved: PyTree, c: PyTree) -> tuple[PyTree, PyTree, None]:
            p, rest, samples = saved
            norm = optax.tree.norm(in_common_type(c))
            unit = _scaled(delta / jnp.where(norm > 0, norm, 1.0), c)
            full = lambda p, rest: jax.grad(loss, argnums=(0, 1))(p, rest, samples)
            ahead = full(optax.tree.add(p, unit), rest)
            behind = full(optax.tree.sub(p, unit), rest)
            hc = _scaled(norm / (2 * delta), optax.tree.sub(ahead, behind))
            return hc[0], hc[1], None

        grad.defvjp(forward, backward)
        return grad

    return curvature


def _scaled(factor: Float[Array, ""], tree: PyTree) -> PyTree:
    """The tree times a number, each leaf in its own type."""
    return jax.tree.map(lambda x: factor.astype(x.dtype) * x, tree)
