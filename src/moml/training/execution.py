"""Where the stretches of a training execute: on one device here, on a mesh, with rows on disk.

A carry is all that the next stretch needs; what a checkpoint holds of it may be another tree.
"""

from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from moml.training.loop import Advance
from moml.types import Info, Meta, Record, State


def copy_arrays(tree: State) -> State:
    """Copy arrays, without weak types: programs are traced once for new and for loaded states."""
    return jax.tree.map(lambda x: jnp.array(x, dtype=x.dtype, copy=True), tree)


class Execution:
    """One device: a carry is what its checkpoints hold. Others override what differs."""

    def __init__(self, first: Callable[[], State], advance: Advance):
        self._first, self._advance = first, advance

    def shapes(self) -> State:
        """Shapes and types of what a checkpoint holds."""
        return jax.eval_shape(self._first)

    def first(self, *, progress: bool = False) -> State:
        """The carry before the first step."""
        return copy_arrays(self._first())

    def load(self, saved: State, step: int) -> State:
        """The carry to continue from, of what the checkpoint of a step holds."""
        return copy_arrays(jax.tree.map(np.asarray, saved))

    def advance(self, carry: State, begin: int, size: int) -> tuple[State, Info]:
        """`size` steps from step `begin`: the next carry, and loss and norm of each step."""
        return self._advance(carry, begin, size)

    def meta(self, carry: State) -> Meta:
        """The meta-model of a carry, as scores take it."""
        return carry.meta

    def stores(self, carry: State) -> Iterator[tuple[Int[np.ndarray, " tasks"], State]]:
        """What is kept of all tasks, in parts: their ids, and a store with a row for each.

        Padding at the end of a part has the last id once more, and rows as before the first visit.
        """
        yield np.arange(len(jax.tree.leaves(carry.memory)[0])), carry.memory

    def snapshot(self, carry: State, step: int, kept: Sequence[int]) -> tuple[State, Record]:
        """What a checkpoint of this step holds, and its notes; `kept` are those that will stay."""
        return carry, {}

    def verify(self, notes: Record) -> str | None:
        """Why a checkpoint with these notes cannot be used, or None."""
        return None

    def check_new(self) -> None:
        """Check that a new run can begin, before its folder is claimed."""

    def describe(self) -> str:
        """How the work is distributed; empty on one device."""
        return ""

    def close(self) -> None:
        """Release threads and files."""
