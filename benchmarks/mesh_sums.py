"""One of the two processes of `bench_mesh.py` that sum: ADDRESS, and its number."""

import json
import statistics
import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from moml.runtime.mesh import mesh
from moml.runtime.owners import AXIS

SIZES = [8, 7_048, 1 << 16, 1 << 20, 1 << 24]  # bytes of a sum


def main() -> None:
    address, process = sys.argv[1], int(sys.argv[2])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, process, coordinator_bind_address=address)
    both, spec = mesh(), jax.sharding.PartitionSpec(AXIS)
    place = jax.sharding.NamedSharding(both, spec)
    found = {}
    for size in SIZES:
        again = 200 if size < 1 << 20 else 10
        sums = lambda x, again=again: jax.lax.fori_loop(
            0, again, lambda _, x: jax.lax.psum(x, AXIS) / 2, x
        )
        run = jax.jit(
            jax.shard_map(sums, mesh=both, in_specs=spec, out_specs=spec, check_vma=False)
        )
        values = np.ones(2 * size // 4, np.float32)
        x = jax.make_array_from_callback(values.shape, place, lambda at, v=values: v[at])
        times = []
        for _ in range(6):
            begin = time.perf_counter()
            jax.block_until_ready(run(x))
            times.append((time.perf_counter() - begin) / again * 1e6)
        found[size] = [min(times[1:]), statistics.median(times[1:])]
    if process == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
