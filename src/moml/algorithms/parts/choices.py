"""From a method's keywords to its parts: adaptation, memory, task batches."""

from collections.abc import Callable
from typing import NamedTuple

from moml.algorithms.parts.adapt import (
    Leaves,
    all_leaves,
    gradient_steps,
    layer_steps,
    learned_steps,
    named,
    no_leaves,
)
from moml.algorithms.parts.curvature import exact, finite_difference, first_order
from moml.algorithms.parts.memory import ROWS
from moml.algorithms.parts.packed import ROWS as PACKED
from moml.algorithms.parts.packed import packed
from moml.algorithms.parts.task_map import Rows
from moml.errors import ConfigError
from moml.types import Adapt, Loss, Memory, SampleSpec

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


def by_steps(
    loss: Loss,
    *,
    curvature: str = "exact",
    leaves: Leaves = all_leaves,
    tied: bool | Leaves = False,
    step_sizes: str = "given",
    adapt: Callable[[int], Adapt] | None = None,
) -> Callable[[int], Adapt]:
    """Gradient steps as the keywords have them, or the adaptation that is given."""
    if adapt is None:
        make, start = STEP_SIZES[step_sizes], tied_leaves(tied)
        inner = CURVATURES[curvature]
        return lambda steps: make(loss, steps, curvature=inner, leaves=leaves, tied=start)
    beside = {
        "curvature": curvature != "exact",
        "leaves": leaves is not all_leaves,
        "tied": tied is not False,
        "step_sizes": step_sizes != "given",
    }
    for name in filter(beside.get, beside):
        raise ConfigError(f"{name} must be left out where adapt is given: adapt decides it")
    return adapt


def tied_leaves(tied: bool | Leaves) -> Leaves:
    """The leaves that start with equal rows: those named head, none, or as a function chooses."""
    if isinstance(tied, bool):
        return named("head") if tied else no_leaves
    return tied


def fixed_number(n: int | None) -> int:
    """n, or a ConfigError where there is no end of tasks."""
    if n is None:
        raise ConfigError("a memory per task needs a fixed number n of tasks; got a stream")
    return n


def batch_size(name: str, given: int | None, usual: int, n: int | None) -> int:
    """How many tasks a batch has: as given, at most n; by default the usual number."""
    if given is None:
        return usual if n is None else min(usual, n)
    if n is not None and given > n:
        raise ConfigError(f"{name} must be at most n = {n}; got {given}")
    return given


def spec(tasks: int, k: int, independent_hessian: bool = False) -> SampleSpec:
    """Samples of a step: S1, S3 and, where it is drawn apart, S2."""
    return SampleSpec(tasks, support=k, query=k, hessian=k if independent_hessian else 0)
