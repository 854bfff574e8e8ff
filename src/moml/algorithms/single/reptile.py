"""Reptile: move towards where the tasks' own training went."""

import optax

from moml.algorithms.parts.memory import none
from moml.algorithms.parts.task_map import Each, over, side_by_side
from moml.algorithms.single.moml import Outcome, State, norm, outer_step
from moml.types import Adapt, Algorithm, Hyper, Info, Loss, Need, Params, Visit


def reptile(loss: Loss, adapt: Adapt, outer: optax.GradientTransformation, need: Need) -> Algorithm:
    """w <- w + eta mean(v^(k) - w) after k inner steps, with S1 alone; its loss is that at v."""

    def init(params: Params, hyper: Hyper) -> State:
        meta = adapt.init(params, hyper)
        return State(meta, (), outer.init(meta))

    def step(
        state: State, visit: Visit, hyper: Hyper, each: Each = side_by_side
    ) -> tuple[State, Info]:
        meta = state.meta

        def towards(row: tuple[()], visit: Visit) -> tuple[Outcome, tuple[()]]:
            v = adapt.merge(meta, adapt.apply(meta, visit.task.support, hyper))
            return Outcome(optax.tree.sub(meta, v), loss(v, visit.task.support)), ()

        delta, value = over(len(visit.ids), each(towards, none(), (), visit)[0])
        meta, outer_state = outer_step(outer, meta, state.outer, delta, hyper)
        return State(meta, (), outer_state), Info(value, norm(delta))

    return Algorithm(init, step, need)
