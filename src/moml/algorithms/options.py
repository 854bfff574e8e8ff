"""The shape of a method, as a user gives it, and what cannot be."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import optax

from moml.algorithms.federated.rounds import ROWS
from moml.algorithms.parts.adapt import (
    Leaves,
    all_leaves,
    gradient_steps,
    layer_steps,
    learned_steps,
    no_leaves,
)
from moml.algorithms.parts.curvature import exact, finite_difference, first_order
from moml.algorithms.parts.outer import is_direction
from moml.algorithms.parts.packed import ROWS as PACKED
from moml.algorithms.parts.packed import packed
from moml.algorithms.parts.task_map import Rows
from moml.errors import ConfigError, check_count
from moml.types import Adapt, Memory, Params

CURVATURES = {
    "exact": exact,
    "first-order": first_order,
    "finite-difference": finite_difference(),
}
STEP_SIZES = {"given": gradient_steps, "parameter": learned_steps, "layer": layer_steps}


class Stored(NamedTuple):
    """How memories are kept: a memory as it is -> as it is kept, and the rows of its store."""

    memory: Callable[[Memory], Memory]
    rows: Rows


MEMORY_DTYPES = {
    "float32": Stored(lambda memory: memory, ROWS),  # or whatever the parameters are
    "bfloat16": Stored(packed, PACKED),
}
# What one step of an adaptation costs on the way back: gradients, Hessian-vector products.
WAY_BACK = {"exact": (0, 1), "first-order": (0, 0), "finite-difference": (2, 0)}


@dataclass(frozen=True)
class Options:
    """The shape of a method: what is fixed when its program is compiled."""

    n: int | None = None  # tasks in all; None for a stream without end
    tasks_per_step: int = 3  # B
    k: int = 1  # samples in each of S1, S2, S3
    inner_steps: int = 1  # gradient steps of one adaptation
    curvature: str = "exact"  # or first-order, finite-difference
    leaves: Leaves = all_leaves  # which parameters adapt
    tied: Leaves = no_leaves  # which of them begin with equal rows: a head's, for all classes
    step_sizes: str = "given"  # or learned from alpha on, by parameter, or by layer and step
    adapt: Callable[[int], Adapt] | None = None  # another adaptation, given the number of steps
    outer: Any = None  # an optax transformation that gives a direction, e.g. optax.scale_by_adam()
    independent_hessian: bool = False  # S2 drawn apart from S1, as the paper has it
    features: Callable[[Params, Any], Any] | None = None  # protonet: what the head is given
    both_ways: bool = False  # S1 and S3 in both roles: as many samples, twice the work
    eager: bool = False  # fill all memories before training
    two_batches: bool = False  # v2: the paper's separate batch for the memories
    direct: bool = False  # v2: move every memory at every step, O(n d)
    memory_dtype: str = "float32"  # or bfloat16: memories in half the space
    shots: int | None = None  # moml: how many samples a user will adapt on
    test_steps: int = 1  # moml: how many steps a user will adapt with
    iterations: int | None = None  # moml: how long training will be; `fit` and `sweep` know it
    local_steps: int = 5  # federated methods: H
    restart_samples: int | None = None  # localmoml: K0, twice K by default
    carried: bool = False  # localmoml: keep memories between rounds instead of restarting them
    dropout: float = 0.0  # federated methods: probability that a client's answer is lost
    straggle: float = 0.0  # and that it does fewer local steps: 1 to H - 1
    weighted: bool = False  # and whether the server's mean counts clients by their sizes
    at_once: int | None = None  # and how many clients run side by side; None: see `rounds`
    prox: float = 1.0  # pfedme (100 by default) and ditto: lambda, the pull towards w
    prox_steps: int = 50  # pfedme: R, gradient steps on a subproblem
    server_rate: float = 1.0  # pfedme: beta_s, how far the server goes towards the mean
    large_tasks: int = 10  # bspiderboost: N1
    period: int = 3  # bspiderboost: q


def number_of_tasks(o: Options) -> int:
    """n, or a ConfigError where there is no end of tasks."""
    if o.n is None:
        raise ConfigError("a memory per task needs a fixed number n of tasks; given: a stream")
    return o.n


def _check_number(name: str, value: Any, range_: str, allowed: Callable[[Any], bool]) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not allowed(value):
        raise ConfigError(f"{name} must be a number {range_}; given {value!r}")


def check_options(o: Options) -> Options:
    """Refuse what cannot be, in one line."""
    counts = "tasks_per_step k inner_steps local_steps prox_steps large_tasks period test_steps"
    for name in counts.split():
        check_count(name, getattr(o, name))
    for name in ("n", "shots", "restart_samples", "iterations", "at_once"):
        if getattr(o, name) is not None:
            check_count(name, getattr(o, name))
    if o.n is not None and o.tasks_per_step > o.n:
        raise ConfigError(f"tasks_per_step = {o.tasks_per_step} of only n = {o.n} tasks")
    words: dict[str, list[str]] = {
        "curvature": [*CURVATURES],
        "step_sizes": [*STEP_SIZES],
        "memory_dtype": [*MEMORY_DTYPES],
    }
    for name, allowed in words.items():
        value = getattr(o, name)
        if not isinstance(value, str) or value not in allowed:
            raise ConfigError(f"unknown {name} {value!r}; allowed: {', '.join(allowed)}")
    _check_number("dropout", o.dropout, "from 0, below 1", lambda p: 0 <= p < 1)
    _check_number("straggle", o.straggle, "from 0 to 1", lambda p: 0 <= p <= 1)
    _check_number("prox", o.prox, "above 0", lambda x: 0 < x < math.inf)
    _check_number("server_rate", o.server_rate, "above 0, up to 1", lambda x: 0 < x <= 1)
    if o.straggle and o.local_steps == 1:
        raise ConfigError("straggle needs local_steps of 2 and more: nobody does fewer than 1")
    if o.both_ways and o.independent_hessian:
        raise ConfigError("both_ways takes S2 from S1 and from S3: leave out independent_hessian")
    if o.direct and o.memory_dtype != "float32":
        raise ConfigError("direct moves every memory at every step: it has them in float32 alone")
    for name in ("leaves", "tied"):
        if not callable(getattr(o, name)):
            given = getattr(o, name)
            raise ConfigError(
                f'{name} must be a function, such as moml.named("head"); given {given!r}'
            )
    if o.outer is not None and not isinstance(o.outer, optax.GradientTransformation):
        raise ConfigError(f"outer must be an optax transformation; given {o.outer!r}")
    if o.outer is not None and not is_direction(o.outer):
        raise ConfigError(
            "outer must give a direction, such as optax.scale_by_adam(); given a whole optimiser, "
            "which turns the gradient's sign: the step size is eta"
        )
    return o
