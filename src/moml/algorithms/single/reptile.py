"""Reptile: move towards where each task's training ends."""

import optax

from moml.algorithms.method import Method, factory
from moml.algorithms.parts.adapt import all_leaves
from moml.algorithms.parts.choices import ANY, Batch, by_steps
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.optimizer import Optimizer, optimizer_step, rates, transformation
from moml.algorithms.parts.task_map import TaskMap, mean_from_sum, norm, side_by_side
from moml.algorithms.signature import Chosen, Count, NonNegative, Positive
from moml.algorithms.signature import Optimizer as OptimizerOption
from moml.algorithms.single.engine import Outcome, State
from moml.types import Adapt, Algorithm, Hyper, Info, Loss, Params, SampleSpec, TaskBatch


def reptile_steps(loss: Loss, adapt: Adapt, optimizer: Optimizer, need: SampleSpec) -> Algorithm:
    """w <- w + eta mean(v^(k) - w) after k inner steps, with S1 alone; its loss is that at v."""

    def init(params: Params, hyper: Hyper) -> State:
        meta = adapt.init(params, hyper)
        return State(meta, (), transformation(optimizer, hyper).init(meta))

    def step(
        state: State, visit: TaskBatch, hyper: Hyper, each: TaskMap = side_by_side
    ) -> tuple[State, Info]:
        meta = state.meta

        def towards(row: tuple[()], visit: TaskBatch) -> tuple[Outcome, tuple[()]]:
            v = adapt.merge(meta, adapt.apply(meta, visit.task.support, hyper))
            return Outcome(optax.tree.sub(meta, v), loss(v, visit.task.support)), ()

        delta, value = mean_from_sum(len(visit.ids), each(towards, none(), (), visit)[0])
        meta, kept = optimizer_step(optimizer, meta, state.optimizer, delta, hyper)
        return State(meta, (), kept), Info(value, norm(delta))

    return Algorithm(init, step, need)


@factory
def reptile(
    loss: Loss,
    *,
    batch: Batch = ANY,
    eta: Positive = 0.05,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    leaves: Chosen = all_leaves,
    optimizer: OptimizerOption = "sgd",
) -> Method:
    """Reptile: towards the end of each task's own training.

    v = k steps from w on S1,    w <- w + eta mean_i (v - w)

    Examples
    --------
    >>> from moml.methods import reptile
    >>> reptile(lambda w, x: (w - x) ** 2, inner_steps=5).inner_steps
    5
    """
    adaptation = by_steps(loss, curvature="first-order", leaves=leaves)
    samples = SampleSpec(batch.size, support=batch.k)
    algorithm = reptile_steps(loss, adaptation(inner_steps), optimizer, samples)
    hyper = rates(optimizer, eta=eta, alpha=alpha)
    return Method(algorithm, adaptation, hyper, options={"tasks_per_step": batch.size})
