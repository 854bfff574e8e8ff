"""How much memory is free, and how much of it a compiled program takes."""

from pathlib import Path

import jax
import jax.numpy as jnp
from jax.stages import Compiled, Wrapped

from moml.types import Hyper, Info, Key, State

MEMINFO = Path("/proc/meminfo")


def free_bytes() -> int | None:
    """Return the free memory of the default device; None where it is not known."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    lines = MEMINFO.read_text().splitlines() if MEMINFO.exists() else []
    free = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(free[0]) * 1024 if free else None


class Ahead:
    """A jitted stretch of many members, compiled before its first call to measure its memory."""

    def __init__(self, program: Wrapped):
        self._program = program
        self._done: dict[tuple[int, int], Compiled] = {}

    def _compiled(
        self,
        state: State,
        keys: Key | jax.ShapeDtypeStruct,
        begin: jax.Array | jax.ShapeDtypeStruct,
        hyper: Hyper,
        size: int,
    ) -> Compiled:
        place = (keys.shape[0], size)
        if place not in self._done:
            self._done[place] = self._program.lower(state, keys, begin, hyper, size).compile()
        return self._done[place]

    def __call__(
        self, state: State, keys: Key, begin: int, hyper: Hyper, size: int
    ) -> tuple[State, Info]:
        at = jnp.asarray(begin, jnp.int32)
        return self._compiled(state, keys, at, hyper, size)(state, keys, at, hyper)

    def bytes_of(
        self, state: State, keys: Key | jax.ShapeDtypeStruct, hyper: Hyper, size: int
    ) -> int:
        """Return the memory of a stretch for arguments of these shapes, by the compiler."""
        at = jax.ShapeDtypeStruct((), jnp.int32)
        needs = self._compiled(state, keys, at, hyper, size).memory_analysis()
        if needs is None:  # the compiler does not know
            return 0
        kept = needs.argument_size_in_bytes + needs.output_size_in_bytes
        return kept - needs.alias_size_in_bytes + needs.temp_size_in_bytes
