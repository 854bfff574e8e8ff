"""What the names of the single-node methods stand for: their parts, from options."""

import math
from collections.abc import Callable
from typing import Any

import optax

from moml.algorithms.options import (
    CURVATURES,
    MEMORY_DTYPES,
    STEP_SIZES,
    Options,
    number_of_tasks,
)
from moml.algorithms.parts import memory as memories
from moml.algorithms.parts.heads import prototypes
from moml.algorithms.parts.personal import both_ways, personal_step
from moml.algorithms.single.matching import match_beta
from moml.algorithms.single.moml import TwoBatches, single_node, two_batches
from moml.algorithms.single.reptile import reptile
from moml.algorithms.single.spider import Cycle, bspiderboost
from moml.errors import ConfigError
from moml.types import Adapt, Algorithm, Loss, Memory, Need

Parts = tuple[Algorithm, Memory]


def by_steps(loss: Loss, o: Options) -> Callable[[int], Adapt]:
    """Gradient steps, as the options have them."""
    make, curvature = STEP_SIZES[o.step_sizes], CURVATURES[o.curvature]
    return lambda steps: make(loss, steps, curvature=curvature, leaves=o.leaves, tied=o.tied)


def by_prototypes(loss: Loss, o: Options) -> Callable[[int], Adapt]:
    """Class means of the network's features, as the head."""
    features = o.features
    if features is None:
        raise ConfigError("protonet needs the network's features: give features=net.features")
    head = lambda params: params["head"] if isinstance(params, dict) else params.head
    return lambda steps: prototypes(features, head)


def _need(o: Options, tasks: int) -> Need:
    return Need(tasks, support=o.k, query=o.k, hessian=o.k if o.independent_hessian else 0)


def _outer(o: Options) -> Any:
    return optax.identity() if o.outer is None else o.outer


def without_memory(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """MAML and its kin."""
    kept = memories.none()
    return single_node(loss, adapt, kept, _outer(o), _need(o, o.tasks_per_step)), kept


def v1(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """MOML v1."""
    kept = MEMORY_DTYPES[o.memory_dtype].memory(memories.ema(number_of_tasks(o)))
    visiting = both_ways if o.both_ways else personal_step
    return single_node(loss, adapt, kept, _outer(o), _need(o, o.tasks_per_step), visiting), kept


def v1_all_tasks(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """SCGD and NASA: v1 with every task in every step."""
    kept = MEMORY_DTYPES[o.memory_dtype].memory(memories.ema(number_of_tasks(o)))
    return single_node(loss, adapt, kept, _outer(o), _need(o, number_of_tasks(o))), kept


def v2(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """MOML v2, lazy or direct, with one batch or two."""
    kind = memories.debiased_ema_direct if o.direct else memories.debiased_ema
    kept = MEMORY_DTYPES[o.memory_dtype].memory(
        kind(number_of_tasks(o), o.tasks_per_step / number_of_tasks(o))
    )
    b, k = o.tasks_per_step, o.k
    if not o.two_batches:
        return single_node(loss, adapt, kept, _outer(o), _need(o, b)), kept
    needs = TwoBatches(memory=Need(b, support=k), meta=Need(b, query=k, hessian=k))
    return two_batches(loss, adapt, kept, _outer(o), needs), kept


def spider(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """BSpiderBoost."""
    small = _need(o, o.tasks_per_step)._replace(times=o.period - 1)
    needs = Cycle(_need(o, o.large_tasks), small if o.period > 1 else None)
    return bspiderboost(loss, adapt, needs), memories.none()


def towards_tasks(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """Reptile."""
    need = Need(o.tasks_per_step, support=o.k)
    return reptile(loss, adapt, _outer(o), need), memories.none()


def matched(o: Options) -> float:
    """The weight beta that suits the samples a user will adapt on."""
    if o.shots is None:
        raise ConfigError("moml matches beta to your users: give shots, their samples each")
    visits = (
        math.inf if o.iterations is None else o.iterations * o.tasks_per_step / number_of_tasks(o)
    )
    return match_beta(o.k, o.shots, steps=o.test_steps, visits=visits, both_ways=o.both_ways)
