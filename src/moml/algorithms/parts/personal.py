"""What one task or client ever does: adapt, remember, pull back. Everything is built on it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax
from jaxtyping import Array, Float, PyTree

from moml.types import Adapt, Hyper, Loss, Memory, Meta, Personal, Samples, Task


class Step(NamedTuple):
    """The outcome of one personal step."""

    u: Personal
    delta: Meta
    loss: Float[Array, ""]


def query(
    loss: Loss, adapt: Adapt, meta: Meta, u: Personal, pull: PyTree, samples: Samples
) -> Step:
    """Delta = J_A(w; S2)' grad L_S3(u'), and the gradient of what does not adapt."""
    at_memory = lambda m, u: loss(adapt.merge(m, u), samples)
    value, (g_meta, g_u) = jax.value_and_grad(at_memory, argnums=(0, 1))(meta, u)
    return Step(u, optax.tree.add(g_meta, pull(g_u)[0]), value)


def pull_back(adapt: Adapt, meta: Meta, samples: Samples, hyper: Hyper) -> tuple[Personal, PyTree]:
    """v = A(w; S) and the function c -> J_A(w; S)' c."""
    return jax.vjp(lambda m: adapt.apply(m, samples, hyper), meta)


def personal_step(loss: Loss, adapt: Adapt, memory: Memory) -> Callable[..., Step]:
    """One visit of one task, from (meta, row of the memory, samples, hyper).

        v = A(w; S1),    u' = memory(u, w, v),    Delta = J_A(w; S2)' grad L_S3(u')

    With S2 = S1 (`task.hessian` is None) the pull-back shares the forward pass of v.
    """

    def step(meta: Meta, row: PyTree, task: Task, hyper: Hyper) -> Step:
        v, pull = pull_back(adapt, meta, task.support, hyper)  # v = A(w; S1)
        if task.hessian is not None:
            _, pull = pull_back(adapt, meta, task.hessian, hyper)  # an independent S2
        u = memory.mix(row, adapt.start(meta), v, hyper)
        return query(loss, adapt, meta, u, pull, task.query)

    return step


def both_ways(loss: Loss, adapt: Adapt, memory: Memory) -> Callable[..., Step]:
    """The mean of two personal steps: S1 supports and S3 asks, then the other way round.

    As many samples, twice the work, and half the noise in what a visit leaves behind:

        u' = (u'_1 + u'_3) / 2,    Delta = (Delta(S1, S3) + Delta(S3, S1)) / 2
    """
    step = personal_step(loss, adapt, memory)

    def visit(meta: Meta, row: PyTree, task: Task, hyper: Hyper) -> Step:
        turned = task._replace(support=task.query, query=task.support)
        one, other = (step(meta, row, each, hyper) for each in (task, turned))
        return jax.tree.map(lambda a, b: (a + b) / 2, one, other)

    return visit
