"""From a method's keywords to its parts: adaptation, memory, task batches.

Keywords that many methods share are groups: a factory with `inner: Inner` has the keywords of
`Inner`, and gets them in one object.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from moml.algorithms.parts.adapt import (
    Leaves,
    all_leaves,
    gradient_steps,
    layer_steps,
    leaf_names,
    learned_steps,
    named,
    no_leaves,
)
from moml.algorithms.parts.curvature import exact, finite_difference, first_order
from moml.algorithms.parts.memory import ROWS
from moml.algorithms.parts.packed import ROWS as PACKED
from moml.algorithms.parts.packed import packed
from moml.algorithms.parts.task_map import Rows
from moml.algorithms.signature import (
    Adaptation,
    Chosen,
    Count,
    Curvature,
    Function,
    Group,
    StepSizes,
    Tied,
)
from moml.errors import ConfigError
from moml.types import Loss, Memory, Params, SampleSpec

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


def by_steps(loss: Loss, **keywords: Any) -> Adaptation:
    """The adaptation that some keywords of `Inner` describe."""
    return Inner(**keywords).adaptation(loss)


def tied_leaves(tied: bool | Leaves) -> Leaves:
    """The leaves that start with equal rows: those named head, none, or as a function chooses."""
    if isinstance(tied, bool):
        return named("head") if tied else no_leaves
    return tied


def private_leaves(given: str | Leaves | None, keyword: str = "private") -> Leaves:
    """The leaves with such names, or as a function chooses; none where nothing is given."""
    if given is None:
        return no_leaves
    return _at_least_one(given, keyword) if isinstance(given, str) else given


def _at_least_one(pattern: str, keyword: str) -> Leaves:
    """The leaves with such names, or a ConfigError where there are none."""
    chosen, nothing = named(pattern), f"{keyword} must match the name of a leaf; got {pattern!r}"

    def leaves(params: Params) -> PyTree[bool]:
        found = chosen(params)
        if any(jax.tree.leaves(found)):
            return found
        names = leaf_names(params)
        few = [*names[:8], "..."] if len(names) > 8 else names
        raise ConfigError(f"{nothing}, of the leaves {', '.join(few)}")

    return leaves


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


@dataclass(frozen=True)
class Sampling(Group):
    """The tasks of a step, and their samples."""

    n: Count | None
    k: Count = 1
    tasks_per_step: Count | None = None

    @property
    def size(self) -> int:
        """B: tasks in a step."""
        return batch_size("tasks_per_step", self.tasks_per_step, 3, self.n)

    @property
    def count(self) -> int:
        """Tasks in all, of which there must be an end."""
        return fixed_number(self.n)

    def spec(self, independent_hessian: bool = False) -> SampleSpec:
        """Samples of a step."""
        return spec(self.size, self.k, independent_hessian)


ANY = Sampling(n=None)  # as a default: n may be left out


@dataclass(frozen=True)
class Inner(Group):
    """The adaptation: gradient steps, or another one."""

    inner_steps: Count = 1
    curvature: Curvature = "exact"
    leaves: Chosen = all_leaves
    tied: Tied = False
    step_sizes: StepSizes = "given"
    adapt: Function | None = None

    def adaptation(self, loss: Loss) -> Adaptation:
        """Gradient steps as the keywords have them, or the adaptation that is given."""
        if self.adapt is None:
            make, tied = STEP_SIZES[self.step_sizes], tied_leaves(self.tied)
            inner, leaves = CURVATURES[self.curvature], self.leaves
            return lambda steps: make(loss, steps, curvature=inner, leaves=leaves, tied=tied)
        for name in ("curvature", "leaves", "tied", "step_sizes"):
            if getattr(self, name) != getattr(Inner, name):
                raise ConfigError(f"{name} must be left out where adapt is given: adapt decides it")
        return self.adapt


@dataclass(frozen=True)
class Use(Group):
    """The adaptation where clients have none in training: first-order steps when it is used."""

    inner_steps: Count = 1
    leaves: Chosen = all_leaves

    def adaptation(self, loss: Loss) -> Adaptation:
        """Gradient steps on the chosen leaves."""
        return by_steps(loss, curvature="first-order", leaves=self.leaves)
