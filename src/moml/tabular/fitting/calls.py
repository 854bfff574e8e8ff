"""The calls that train a table's members: all settings of a kind at once, each alone, or on a mesh.

Members of a kind are [settings * seeds]. On a mesh they are dealt to the devices, the last ones
repeated where their number is no multiple of that of the devices.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from moml.runtime.mesh import ROWS, WHOLE, placed, whole
from moml.tabular.fitting.program import TableData, TablePlan, Visits, train_program
from moml.types import Hyper, Info, State, Task


class Call(NamedTuple):
    """The members of a kind that one call trains: all seeds of some settings."""

    kind: str
    settings: tuple[int, ...]


class Stretch(NamedTuple):
    """What a call returned, on the host; leaves [members, ...]."""

    info: Info
    meta: np.ndarray
    answers: np.ndarray  # for the held-out tasks' queries

    def of(self, call: Call, setting: int) -> "Stretch":
        """The members of one of its settings."""
        at, size = call.settings.index(setting), len(self.meta) // len(call.settings)
        return jax.tree.map(lambda leaf: leaf[at * size : (at + 1) * size], self)


class Calls:
    """Calls with the arguments that do not change; `hyper` is [settings], `count` seeds by kind."""

    def __init__(
        self,
        plan: TablePlan,
        given: TableData,
        test: Task,
        hyper: Hyper,
        count: Mapping[str, int],
        mesh: Mesh | None,
        apart: bool,
    ):
        self.plan, self.mesh, self.count = plan, mesh, count
        self.given, self.test = self._everywhere(given), self._everywhere(test)
        every = range(len(jax.tree.leaves(hyper)[0]))
        each = [(i,) for i in every] if apart and mesh is None else [tuple(every)]
        self.every = [Call(kind, some) for kind in count for some in each]
        self._hyper = {call: self._hyper_of(call, hyper) for call in self.every}

    def states(self, first: Mapping[str, State]) -> dict[Call, State]:
        """The first states of all calls, from those by kind."""
        found = {}
        for call in self.every:
            n = self.count[call.kind]
            at = np.concatenate([np.arange(i * n, (i + 1) * n) for i in call.settings])
            if self.mesh is not None:
                at = at[self._members(call)]
                some = jax.tree.map(lambda leaf, at=at: np.asarray(leaf)[at], first[call.kind])
                found[call] = placed(some, self.mesh, ROWS)
            elif len(call.settings) == 1:
                found[call] = jax.tree.map(lambda leaf, at=at: leaf[at], first[call.kind])
            else:
                found[call] = first[call.kind]
        return found

    def run(
        self,
        pool: ThreadPoolExecutor,
        states: Mapping[Call, State],
        visits: Visits,
        begin: int,
        size: int,
    ) -> dict[Call, tuple[State, Stretch]]:
        """Train these states by `size` steps, all calls side by side."""
        args = {c: self._arguments(c, state, visits, begin, size) for c, state in states.items()}
        program = lambda call: train_program(call.kind, self.plan, self.mesh)
        ready = {call: program(call).compiled(pool, *args[call]) for call in states}
        running = {call: pool.submit(ready[call].result(), *args[call]) for call in states}
        found = {}
        for call in states:
            state, info, answers = running[call].result()
            members = len(call.settings) * self.count[call.kind]
            host = lambda leaf, n=members: whole(leaf)[:n]
            info = jax.tree.map(lambda leaf, host=host: host(leaf)[:, :size], info)
            found[call] = state, Stretch(info, np.array(host(state.meta)), host(answers))
        return found

    def _arguments(
        self, call: Call, state: State, visits: Visits, begin: int, size: int
    ) -> tuple[PyTree, ...]:
        n = self.count[call.kind]
        if self.mesh is None and n < len(visits.ids):
            visits = jax.tree.map(lambda leaf: np.asarray(leaf)[:n], visits)
        fixed = state, self.given, self.test, visits, np.int32(begin), np.int32(size)
        return (*fixed, *self._hyper[call])

    def _hyper_of(self, call: Call, hyper: Hyper) -> Sequence[PyTree]:
        """The hyper-parameters of a call's settings; on a mesh of its members, and their seeds."""
        mine = jax.tree.map(lambda leaf: leaf[list(call.settings)], hyper)
        if self.mesh is None:
            return (mine,)
        at, n = self._members(call), self.count[call.kind]
        by_member = jax.tree.map(lambda leaf: leaf[at // n], mine)
        return placed((by_member, (at % n).astype(np.int32)), self.mesh, ROWS)

    def _members(self, call: Call) -> np.ndarray:
        """The members of a call in their places on the mesh."""
        n = len(call.settings) * self.count[call.kind]
        devices = 1 if self.mesh is None else self.mesh.size
        return np.arange(-(-n // devices) * devices) % n

    def _everywhere(self, tree: PyTree) -> PyTree:
        return jax.device_put(tree) if self.mesh is None else placed(tree, self.mesh, WHOLE)
