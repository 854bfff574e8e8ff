"""A stretch whose store has only the rows of the tasks that its steps visit.

These are known in advance, as draws depend on the key and the step's number alone. The other rows
can be elsewhere, on disk say; the program is that of `simulate`, and so is the result.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from moml.algorithms.parts.schedule import Schedule, constant
from moml.kept import kept
from moml.runtime import simulate
from moml.types import Algorithm, Hyper, Info, Key, State, Tasks


class PartialStore(NamedTuple):
    """A method's state with the rows of the tasks `ids` (ascending); the rest is padding."""

    state: State
    ids: Int[Array, " rows"]


def place(store: PartialStore, ids: Int[Array, "*tasks"]) -> Int[Array, "*tasks"]:
    """Return the places of these tasks' rows in the store."""
    return jnp.searchsorted(store.ids, ids).astype(jnp.int32)


def _inside(algorithm: Algorithm) -> Algorithm:
    """Return the same method with its state in a `PartialStore`."""

    def step(store: PartialStore, visits: PyTree, hyper: Hyper) -> tuple[PartialStore, Info]:
        state, info = algorithm.step(store.state, visits, hyper)
        return store._replace(state=state), info

    return algorithm._replace(step=step)


@kept
def program(algorithm: Algorithm, schedule: Schedule = constant) -> simulate.Program:
    """Return `simulate.program` on a `PartialStore`, which must have all tasks that it visits."""
    return simulate.program(_inside(algorithm), schedule, place)


def fill(algorithm: Algorithm, k: int) -> Callable[[PartialStore, Tasks, Key, Hyper], PartialStore]:
    """Return the eager filling of all rows of a `PartialStore`: (store, tasks, key, hyper)."""
    inner = algorithm.fill
    write = inner and (lambda s, visit, hyper: s._replace(state=inner(s.state, visit, hyper)))
    some = simulate.fill_some(write, k, place)
    return lambda store, tasks, key, hyper: some(store, tasks, store.ids, key, hyper)


def visited(
    algorithm: Algorithm, tasks: Tasks, key: Key, start: int, size: int, length: int
) -> Int[np.ndarray, " tasks"]:
    """Return the tasks that `size` steps visit, at most `length`, with repetitions."""
    visits = simulate.draws(algorithm.needs)(tasks, key, start, length)
    return np.concatenate([np.asarray(ids)[:size].reshape(-1) for ids in simulate.ids_of(visits)])
