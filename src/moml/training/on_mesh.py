"""Training on many devices or in many processes, each device with the tasks that it owns."""

from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.stages import Compiled
from jaxtyping import Array

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import Schedule
from moml.runtime import sharded
from moml.runtime.account import all_reduced
from moml.runtime.mesh import gathered, spread, task_data
from moml.runtime.process_group import ProcessGroup
from moml.storage.shares import Share
from moml.training.compose import fill_key
from moml.training.execution import Execution
from moml.types import Hyper, Info, Key, Meta, Params, Record, State, Tasks


class OnMesh(Execution):
    """The training of one device, up to the order of a sum; its carry lies on a mesh.

    `whole` makes the first state on one device, which has the shapes of what is saved.
    """

    def __init__(
        self,
        method: Method,
        tasks: Tasks,
        mesh: Mesh,
        group: ProcessGroup,
        schedule: Schedule,
        params: Params,
        key: Key,
        hyper: Hyper,
        whole: Callable[[], State],
        length: int,  # steps of a stretch, at most
    ):
        super().__init__(whole, self.advance)
        sharded.check(method.algorithm, tasks, mesh, method.name)
        self._algorithm, self._method, self._tasks = method.algorithm, method, tasks
        self._mesh, self._group = mesh, group
        self._given = task_data(tasks, mesh), sharded.without_data(tasks), key
        self._params, self._key, self._hyper, self._length = params, key, hyper, length
        self._program = sharded.program(self._algorithm, mesh, schedule, at_once=method.at_once)
        self._compiled: Compiled | None = None

    def first(self, *, progress: bool = False) -> State:
        algorithm, tasks, method = self._algorithm, self._tasks, self._method
        state = sharded.first(algorithm, self._mesh)(self._params, self._hyper)
        if not method.eager or tasks.n is None:
            return state
        fill = sharded.fill(algorithm, tasks, self._mesh, method.k)
        return fill(state, fill_key(self._key), self._hyper)

    def load(self, saved: State, step: int) -> State:
        return spread(self._algorithm, saved, self._mesh)

    def advance(self, carry: State, begin: int, size: int) -> tuple[State, Info]:
        first, count = (jnp.asarray(number, jnp.int32) for number in (begin, size))
        given = (carry, *self._given, first, self._hyper, count)
        with self._group.watch():
            if self._compiled is None:
                self._compiled = self._program.lower(*given, self._length).compile()
            carry, info = self._compiled(*given)
            return carry, jax.tree.map(lambda x: np.asarray(x)[:size], info)  # waits for errors

    def meta(self, carry: State) -> Meta:
        return jax.device_get(carry.meta)

    def stores(self, carry: State) -> Iterator[tuple[np.ndarray, State]]:
        with self._group.watch():
            whole = gathered(self._algorithm, carry, self._tasks.n)
        yield from super().stores(whole)

    def snapshot(self, carry: State, step: int, kept: Sequence[int]) -> tuple[State, Record]:
        if self._group.processes == 1:
            return gathered(self._algorithm, carry, self._tasks.n), {}
        rows = jax.tree.broadcast(self._algorithm.rows, carry)
        mine = lambda rows, leaf: _share(leaf, self._tasks.n or 0) if rows else np.asarray(leaf)
        return jax.tree.map(mine, rows, carry), {}

    def describe(self) -> str:
        processes = self._group.processes
        size = sum(leaf.size for leaf in jax.tree.leaves(self._params))
        text = f"{self._mesh.size} devices of {processes} process{'es' * (processes > 1)}"
        text += f": d = {size:,} parameters"
        if self._compiled:  # else nothing was left to do
            text += f", {all_reduced(self._compiled):,} bytes summed over devices in a step"
        return text


def _share(leaf: Array, n: int) -> Share:
    """The rows of a leaf that lie on this process's devices, without padding."""
    shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    first = min(shards[0].index[0].start or 0, n)
    rows = np.concatenate([np.asarray(shard.data) for shard in shards])
    return Share(first, rows[: n - first].copy(), n)
