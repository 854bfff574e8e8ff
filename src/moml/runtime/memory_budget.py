"""How much memory is free, and how much of it a compiled program takes."""

from pathlib import Path

import jax
import jax.numpy as jnp
from jax.stages import Compiled, Wrapped
from jaxtyping import PyTree

from moml.runtime.account import nbytes
from moml.types import Hyper, Info, Key, State, Tasks

MEMINFO = Path("/proc/meminfo")


def free_bytes() -> int | None:
    """Return the free memory of the default device; None where it is not known."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    lines = MEMINFO.read_text("utf-8").splitlines() if MEMINFO.exists() else []
    free = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(free[0]) * 1024 if free else None


class Ahead:
    """A jitted stretch of many members, compiled before its first call to measure its memory."""

    def __init__(self, program: Wrapped):
        self._program = program
        self._done: dict[tuple[int, int], Compiled] = {}

    def _compiled(self, keys: Key | jax.ShapeDtypeStruct, length: int, given: PyTree) -> Compiled:
        place = (keys.shape[0], length)
        if place not in self._done:
            self._done[place] = self._program.lower(*given, length).compile()
        return self._done[place]

    def __call__(
        self,
        state: State,
        tasks: Tasks,
        keys: Key,
        begin: int,
        hyper: Hyper,
        size: int,
        length: int,
    ) -> tuple[State, Info]:
        at, count = jnp.asarray(begin, jnp.int32), jnp.asarray(size, jnp.int32)
        given = (state, tasks, keys, at, hyper, count)
        return self._compiled(keys, length, given)(*given)

    def bytes_of(
        self, state: State, tasks: Tasks, keys: jax.ShapeDtypeStruct, hyper: Hyper, length: int
    ) -> int:
        """Return the memory of a stretch for arguments of these shapes, by the compiler.

        The tasks do not count: they are in memory already.
        """
        at = jax.ShapeDtypeStruct((), jnp.int32)
        given = (state, tasks, keys, at, hyper, at)
        needs = self._compiled(keys, length, given).memory_analysis()
        if needs is None:  # the compiler does not know
            return 0
        kept = needs.argument_size_in_bytes - nbytes(tasks) + needs.output_size_in_bytes
        return kept - needs.alias_size_in_bytes + needs.temp_size_in_bytes
