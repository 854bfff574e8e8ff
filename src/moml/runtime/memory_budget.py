"""How much memory is free, and how much of it a compiled program takes."""

from pathlib import Path

import jax

from moml.runtime.account import nbytes
from moml.runtime.simulate import Program
from moml.types import Hyper, State, Tasks

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


def bytes_of(
    program: Program,
    state: State,
    tasks: Tasks,
    keys: jax.ShapeDtypeStruct,
    hyper: Hyper,
    length: int,
) -> int:
    """Return the memory of a stretch for arguments of these shapes, by the compiler.

    The tasks do not count: they are in memory already.
    """
    needs = program.lower(state, tasks, keys, hyper, length)[1].compile().memory_analysis()
    if needs is None:  # the compiler does not know
        return 0
    kept = needs.argument_size_in_bytes - nbytes(tasks) + needs.output_size_in_bytes
    return kept - needs.alias_size_in_bytes + needs.temp_size_in_bytes
