"""How much memory there is, and how much of it a compiled program takes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

MEMINFO = Path("/proc/meminfo")


def free_bytes() -> int | None:
    """Memory that the default device still has; None where the system does not tell."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    lines = MEMINFO.read_text().splitlines() if MEMINFO.exists() else []
    told = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(told[0]) * 1024 if told else None


class Ahead:
    """A jitted stretch of many members, compiled ahead of its first call and so measured."""

    def __init__(self, program: Any):
        self._program = program
        self._done: dict[tuple[int, int], Any] = {}

    def _compiled(self, state: Any, keys: Any, begin: Any, hyper: Any, size: int) -> Any:
        place = (keys.shape[0], size)
        if place not in self._done:
            self._done[place] = self._program.lower(state, keys, begin, hyper, size).compile()
        return self._done[place]

    def __call__(self, state: Any, keys: Any, begin: int, hyper: Any, size: int) -> Any:
        at = jnp.asarray(begin, jnp.int32)
        return self._compiled(state, keys, at, hyper, size)(state, keys, at, hyper)

    def bytes_of(self, state: Any, keys: Any, hyper: Any, size: int) -> int:
        """What a stretch takes for arguments of these shapes, as the compiler says."""
        at = jax.ShapeDtypeStruct((), jnp.int32)
        needs = self._compiled(state, keys, at, hyper, size).memory_analysis()
        held = needs.argument_size_in_bytes + needs.output_size_in_bytes
        return held - needs.alias_size_in_bytes + needs.temp_size_in_bytes
