"""Many devices, many processes: one program, each device with the tasks that it owns.

Tasks are placed on the devices of a mesh in blocks of ids (see `moml.tasks.parts`): their data and
their rows of the state. All else of a state is on every device. The run is that of `simulate`, up
to the order of a sum: draws depend on the key and the number of the step alone.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.stages import Wrapped
from jaxtyping import Array, Int, PyTree

from moml.algorithms.federated.rounds import clients_per_slice
from moml.algorithms.parts.schedule import Schedule, constant
from moml.errors import ConfigError
from moml.kept import kept
from moml.runtime import simulate
from moml.runtime.mesh import ROWS, WHOLE, shardings, specs, task_data
from moml.runtime.owners import owners
from moml.tasks.parts import block_of
from moml.tasks.sampler import as_drawn, specs_in
from moml.types import Algorithm, Hyper, Info, Key, Params, State, Tasks

Number = Int[Array, ""] | int


def check(algorithm: Algorithm, tasks: Tasks, mesh: Mesh, name: str = "this method") -> None:
    """Raise ConfigError for what does not run on many devices."""
    if "each" not in inspect.signature(algorithm.step).parameters:
        raise ConfigError(f"{name} runs on one device only: its steps are not a sum over tasks")
    if any(need.replace for need in specs_in(algorithm.needs)):
        raise ConfigError(f"{name} runs on one device only: it draws tasks with replacement")
    if tasks.n is not None and mesh.size > tasks.n:
        raise ConfigError(
            f"{mesh.size} devices for n = {tasks.n} tasks: give at most as many devices as tasks"
        )


def first(algorithm: Algorithm, mesh: Mesh) -> Callable[[Params, Hyper], State]:
    """Return (params, hyper) -> the first state, on the mesh; no device makes all rows."""

    def begin(params: Params, hyper: Hyper) -> State:
        state = algorithm.init(params, hyper)
        rows = jax.tree.broadcast(algorithm.rows, state)

        def pad(rows: bool, leaf: Array) -> Array:
            more = mesh.size * block_of(len(leaf), mesh.size) - len(leaf) if rows else 0
            return jnp.pad(leaf, [(0, more)] + [(0, 0)] * (leaf.ndim - 1)) if more else leaf

        return jax.tree.map(pad, rows, state)

    return jax.jit(begin, out_shardings=shardings(algorithm, mesh))


@kept
def program(
    algorithm: Algorithm,
    mesh: Mesh,
    schedule: Schedule = constant,
    *,
    at_once: int | None = None,
) -> Wrapped:
    """Return the jitted stretch: (state, data, tasks, key, start, hyper, size, length).

    `data` is `task_data`, and `tasks` is without it; see `simulate.stretch`. The state is donated:
    memories are updated in place. `at_once` tasks run side by side on a device; None: its equal
    share of a step, of clients on a CPU those that fit its cache.
    """

    def run(
        state: State, data: PyTree, tasks: Tasks, key: Key, start: Number, hyper: Hyper,
        size: Number, length: int,
    ) -> tuple[State, Info]:  # fmt: skip
        def own(
            state: State, data: PyTree, tasks: Tasks, key: Key, start: Number, hyper: Hyper,
            size: Number,
        ) -> tuple[State, Info]:  # fmt: skip
            each = owners(tasks, data, mesh.size, at_once or _few(algorithm, state, mesh))
            mine = algorithm._replace(step=partial(algorithm.step, each=each))
            train = simulate.stretch(mine, schedule)
            visits = simulate.drawn(algorithm.needs, tasks, key, start, length)
            return train(state, _unfetched(tasks), visits, start, hyper, size)

        out = (specs(algorithm), WHOLE)
        spread = _on_devices(own, algorithm, mesh, out)
        return spread(state, data, tasks, key, start, hyper, size)

    return jax.jit(run, static_argnums=7, donate_argnums=0)


def fill(
    algorithm: Algorithm, tasks: Tasks, mesh: Mesh, k: int
) -> Callable[[State, Key, Hyper], State]:
    """Return `simulate.fill` on a mesh: each device writes the memories of its own tasks."""
    check(algorithm, tasks, mesh)
    write, n = algorithm.fill, tasks.n
    if write is None or n is None:
        raise ConfigError("this method has no memories to fill")

    def own(state: State, data: PyTree, tasks: Tasks, key: Key, hyper: Hyper) -> State:
        some = partial(write, each=owners(tasks, data, mesh.size))
        return simulate.fill(some, n, k)(state, _unfetched(tasks), key, hyper)

    run = jax.jit(_on_devices(own, algorithm, mesh, specs(algorithm)), donate_argnums=0)
    data, rest = task_data(tasks, mesh), without_data(tasks)
    return lambda state, key, hyper: run(state, data, rest, key, hyper)


def without_data(tasks: Tasks) -> Tasks:
    """Return what every device gets of the tasks: all but the data that is in blocks."""
    return tasks if tasks.cut is None else replace(tasks, data=())


def _few(algorithm: Algorithm, state: State, mesh: Mesh) -> int | None:
    """Clients side by side on a device, where `rounds` takes them in slices."""
    if algorithm.rounds is None or mesh.devices.flat[0].platform != "cpu":
        return None
    return clients_per_slice(state.meta, block_of(algorithm.needs.tasks, mesh.size))


def _unfetched(tasks: Tasks) -> Tasks:
    """Tasks without their samples: `owners` fetches those of a device."""
    return replace(tasks, fetch_from=as_drawn)


def _on_devices(
    own: Callable[..., PyTree], algorithm: Algorithm, mesh: Mesh, out: PyTree
) -> Callable[..., PyTree]:
    """Map `own` over devices: of a state and the data of a device, and of replicated arguments."""

    def run(state: State, data: PyTree, *replicated: PyTree) -> PyTree:
        into = (specs(algorithm), ROWS, *(WHOLE for _ in replicated))
        # With check_vma a gradient by w would be summed over devices, in every turn.
        spread = jax.shard_map(own, mesh=mesh, in_specs=into, out_specs=out, check_vma=False)
        return spread(state, data, *replicated)

    return run
