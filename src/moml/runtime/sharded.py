"""Many devices, many processes: one program, each device with the tasks that it owns.

Tasks lie on the devices of a mesh in blocks of ids (see `moml.tasks.parts`): their data, and their
rows of the state. All else of a state is on every device. The run is that of `simulate`, up to the
order of a sum: what is drawn hangs on the key and the number of the step alone.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array

from moml.algorithms.federated.rounds import clients_per_slice
from moml.algorithms.parts.schedule import Schedule, constant
from moml.errors import ConfigError
from moml.runtime import simulate
from moml.runtime.mesh import ROWS, WHOLE, held, shardings, specs
from moml.runtime.owners import owners
from moml.tasks.parts import block_of
from moml.types import Algorithm, Hyper, Info, Key, Params, SampleSpec, Tasks


def check(algorithm: Algorithm, tasks: Tasks, mesh: Mesh, name: str = "this method") -> None:
    """Refuse what cannot be done on many devices, in one line."""
    if "each" not in inspect.signature(algorithm.step).parameters:
        raise ConfigError(f"{name} runs on one device only: its steps are not a sum over tasks")
    needs = jax.tree.leaves(algorithm.needs, is_leaf=lambda need: isinstance(need, SampleSpec))
    if any(need.replace for need in needs):
        raise ConfigError(f"{name} runs on one device only: it draws tasks with replacement")
    if tasks.n is not None and mesh.size > tasks.n:
        raise ConfigError(
            f"{mesh.size} devices for n = {tasks.n} tasks: give at most as many devices as tasks"
        )


def first(algorithm: Algorithm, mesh: Mesh) -> Any:
    """The first state, made on the mesh: (params, hyper) -> state. No device makes all rows."""

    def begin(params: Params, hyper: Hyper) -> Any:
        state = algorithm.init(params, hyper)
        rows = jax.tree.broadcast(algorithm.rows, state)

        def pad(rows: bool, leaf: Array) -> Array:
            more = mesh.size * block_of(len(leaf), mesh.size) - len(leaf) if rows else 0
            return jnp.pad(leaf, [(0, more)] + [(0, 0)] * (leaf.ndim - 1)) if more else leaf

        return jax.tree.map(pad, rows, state)

    return jax.jit(begin, out_shardings=shardings(algorithm, mesh))


def program(
    algorithm: Algorithm,
    tasks: Tasks,
    mesh: Mesh,
    schedule: Schedule = constant,
    *,
    at_once: int | None = None,
) -> Any:
    """The compiled stretch: (state, held, key, start, hyper, length) -> state, infos.

    The state given is consumed: memories are updated in place. `at_once` tasks run side by side on
    a device; None: its equal share of a step, of clients on a processor those that fit its cache.
    """
    check(algorithm, tasks, mesh)

    def run(
        state: Any, held: Any, key: Key, start: Any, hyper: Hyper, length: int
    ) -> tuple[Any, Info]:
        def own(state: Any, held: Any, key: Key, start: Any, hyper: Hyper) -> tuple[Any, Info]:
            each = owners(tasks, held, mesh.size, at_once or _few(algorithm, state, mesh))
            mine = algorithm._replace(step=partial(algorithm.step, each=each))
            train = simulate.stretch(mine, _unfetched(tasks), schedule)
            return train(state, key, start, hyper, length)

        out = (specs(algorithm), WHOLE)
        return _on_devices(own, algorithm, mesh, out)(state, held, key, start, hyper)

    return jax.jit(run, static_argnums=5, donate_argnums=0)


def fill(
    algorithm: Algorithm, tasks: Tasks, mesh: Mesh, k: int
) -> Callable[[Any, Key, Hyper], Any]:
    """`simulate.fill` on a mesh: each device writes the memories of its own tasks."""
    check(algorithm, tasks, mesh)
    write, n = algorithm.fill, tasks.n
    if write is None or n is None:
        raise ConfigError("this method has no memories to fill")

    def own(state: Any, held: Any, key: Key, hyper: Hyper) -> Any:
        some = partial(write, each=owners(tasks, held, mesh.size))
        return simulate.fill(some, _unfetched(tasks), n, k)(state, key, hyper)

    run = jax.jit(_on_devices(own, algorithm, mesh, specs(algorithm)), donate_argnums=0)
    data = held(tasks, mesh)
    return lambda state, key, hyper: run(state, data, key, hyper)


def _few(algorithm: Algorithm, state: Any, mesh: Mesh) -> int | None:
    """Clients side by side on a device, where `rounds` would take them in slices."""
    if algorithm.rounds is None or mesh.devices.flat[0].platform != "cpu":
        return None
    return clients_per_slice(state.meta, block_of(algorithm.needs.tasks, mesh.size))


def _unfetched(tasks: Tasks) -> Tasks:
    """Tasks as all devices draw them: `owners` fetch what was drawn, each its own."""
    return tasks._replace(fetch=lambda ids, drawn: drawn)


def _on_devices(own: Any, algorithm: Algorithm, mesh: Mesh, out: Any) -> Any:
    """`own` of a state, of what a device holds, and of what all devices are given alike."""

    def run(state: Any, held: Any, *alike: Any) -> Any:
        into = (specs(algorithm), ROWS, *(WHOLE for _ in alike))
        # With check_vma a gradient by w would be summed over devices, in every turn.
        spread = jax.shard_map(own, mesh=mesh, in_specs=into, out_specs=out, check_vma=False)
        return spread(state, held, *alike)

    return run
