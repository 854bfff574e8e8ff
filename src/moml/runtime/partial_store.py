"""A stretch whose store holds the rows of some tasks only: those that its steps visit.

Which they are is known beforehand, as draws depend on the key and the step's number alone. The
other rows can be elsewhere, on disk say; the program is that of `simulate`, and so is the result.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from moml.algorithms.parts.schedule import Schedule, constant
from moml.runtime import simulate
from moml.types import Algorithm, Hyper, Info, Key, TaskBatch, Tasks


class Held(NamedTuple):
    """A method's state with the rows of the tasks `ids`, which ascend; what is left is padding."""

    state: Any
    ids: Int[Array, " rows"]


def place(held: Held, ids: Int[Array, "*tasks"]) -> Int[Array, "*tasks"]:
    """Where in the store the rows of these tasks are."""
    return jnp.searchsorted(held.ids, ids).astype(jnp.int32)


def _inside(algorithm: Algorithm) -> Algorithm:
    """The same method, its state inside a `Held`."""

    def step(held: Held, visits: Any, hyper: Hyper) -> tuple[Held, Info]:
        state, info = algorithm.step(held.state, visits, hyper)
        return held._replace(state=state), info

    return algorithm._replace(step=step)


def stretch(algorithm: Algorithm, tasks: Tasks, schedule: Schedule = constant) -> simulate.Stretch:
    """`simulate.stretch`, from a `Held` to a `Held`; all tasks that it visits must be in there."""
    return simulate.stretch(_inside(algorithm), tasks, schedule, place)


def fill(algorithm: Algorithm, tasks: Tasks, k: int) -> Any:
    """Eager filling of a `Held`: all of its rows, (held, key, hyper)."""

    def write(held: Held, visit: TaskBatch, hyper: Hyper) -> Held:
        if algorithm.fill is None:
            raise TypeError("this method has no memories to fill")
        return held._replace(state=algorithm.fill(held.state, visit, hyper))

    some = simulate.fill_some(write, tasks, k, place)
    return lambda held, key, hyper: some(held, held.ids, key, hyper)


def visited(algorithm: Algorithm, tasks: Tasks) -> Any:
    """The tasks that `length` steps from `start` visit, with repetitions: (key, start, length)."""

    def run(key: Key, start: Int[Array, ""] | int, length: int) -> Int[Array, " tasks"]:
        visits = simulate.drawn(algorithm, tasks, key, start, length)[1]
        return jnp.concatenate([ids.reshape(-1) for ids in simulate.ids_of(visits)])

    return jax.jit(run, static_argnums=2)
