"""Reptile: move towards where each task's training ends."""

from collections.abc import Callable

import optax

from moml.algorithms.method import Method, factory
from moml.algorithms.parts.adapt import all_leaves
from moml.algorithms.parts.choices import ANY, Inner, Sampling
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.optimizer import rates
from moml.algorithms.parts.personal import Step
from moml.algorithms.signature import Chosen, Count, NonNegative, Optimizer, Positive
from moml.algorithms.single.engine import single_node_method
from moml.types import Adapt, Hyper, Loss, Memory, Meta, SampleSpec, Task


def towards_end(loss: Loss, adapt: Adapt, memory: Memory) -> Callable[..., Step]:
    """Delta = w - v after k inner steps, with S1 alone; its loss is that at v."""

    def step(meta: Meta, row: tuple[()], task: Task, hyper: Hyper) -> Step:
        v = adapt.merge(meta, adapt.apply(meta, task.support, hyper))
        return Step(row, optax.tree.sub(meta, v), loss(v, task.support))

    return step


@factory
def reptile(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.05,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    leaves: Chosen = all_leaves,
    optimizer: Optimizer = "sgd",
) -> Method:
    """Reptile: towards the end of each task's own training.

    v = k steps from w on S1,    w <- w + eta mean_i (v - w)

    Examples
    --------
    >>> from moml.methods import reptile
    >>> reptile(lambda w, x: (w - x) ** 2, inner_steps=5).inner_steps
    5
    """
    inner = Inner(inner_steps, "first-order", leaves)
    hyper, samples = rates(optimizer, eta=eta, alpha=alpha), SampleSpec(batch.size, batch.k)
    return single_node_method(loss, inner, none(), optimizer, samples, hyper, towards_end)
