"""Placement on devices: rows of tasks in blocks of ids, all else on every device."""

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from moml.errors import ConfigError
from moml.runtime.owners import AXIS
from moml.tasks.parts import block_of, padded
from moml.types import Algorithm, State, Tasks

ROWS, WHOLE = PartitionSpec(AXIS), PartitionSpec()


def mesh(devices: int | None = None) -> Mesh:
    """Return a mesh of the devices of all processes: all of them, or `devices` of each process.

    >>> mesh(1).size
    1
    """
    every = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    of = [[d for d in every if d.process_index == p] for p in range(jax.process_count())]
    least = min(map(len, of))
    if devices is not None and not 1 <= devices <= least:
        raise ConfigError(f"devices must be from 1 to {least}, all that are here; got {devices}")
    chosen = np.array([device for own in of for device in own[:devices]])
    return Mesh(chosen, (AXIS,), axis_types=(AxisType.Auto,))


def specs(algorithm: Algorithm) -> PyTree:
    """Return the partition of a state's leaves, as a prefix of it."""
    return jax.tree.map(lambda rows: ROWS if rows else WHOLE, algorithm.rows)


def shardings(algorithm: Algorithm, mesh: Mesh) -> PyTree:
    """Return the shardings of a state's leaves, as a prefix of it."""
    return jax.tree.map(lambda rows: NamedSharding(mesh, ROWS if rows else WHOLE), algorithm.rows)


def placed(tree: PyTree, mesh: Mesh, spec: PartitionSpec) -> PyTree:
    """Move arrays from the host, where every process has them whole, to the mesh."""

    def place(leaf: Array | np.ndarray) -> Array:
        host = np.asarray(leaf)
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(host.shape, sharding, lambda at: host[at])

    return jax.tree.map(place, tree)


def whole(leaf: Array) -> np.ndarray:
    """Return all of an array on the host of every process."""
    here = leaf.is_fully_addressable or leaf.is_fully_replicated
    return np.asarray(leaf if here else process_allgather(leaf, tiled=True))


def spread(algorithm: Algorithm, state: State, mesh: Mesh) -> State:
    """Move a state from the host to the mesh, its rows padded; each process places its part."""

    def place(rows: bool, leaf: PyTree) -> Array:
        if not rows:
            return placed(leaf, mesh, WHOLE)
        block = block_of(len(leaf), mesh.size)
        part = lambda at: padded(leaf[at[0]], block)  # just the rows of a device
        shape = (mesh.size * block, *leaf.shape[1:])
        return jax.make_array_from_callback(shape, NamedSharding(mesh, ROWS), part)

    return jax.tree.map(place, jax.tree.broadcast(algorithm.rows, state), state)


def gathered(algorithm: Algorithm, state: State, n: int | None) -> State:
    """Return a state on the host, without padding: every process then has all n rows."""

    def host(rows: bool, leaf: Array) -> np.ndarray:
        return whole(leaf)[:n] if rows else np.asarray(leaf)

    return jax.tree.map(host, jax.tree.broadcast(algorithm.rows, state), state)


def task_data(tasks: Tasks, mesh: Mesh) -> PyTree:
    """Return the tasks' data on the mesh, a block a device; () where all devices need all."""
    if tasks.cut is None:
        return ()
    cut = tasks.cut
    here = jax.process_index()
    own = [(d, device) for d, device in enumerate(mesh.devices) if device.process_index == here]
    blocks = [jax.device_put(cut(tasks.data, mesh.size, d), device) for d, device in own]

    def joined(*pieces: Array) -> Array:
        shape = (mesh.size * len(pieces[0]), *pieces[0].shape[1:])
        return jax.make_array_from_single_device_arrays(
            shape, NamedSharding(mesh, ROWS), list(pieces)
        )

    return jax.tree.map(joined, *blocks)
