"""MOML v1 with the memories on disk over the same in memory, and what it takes of RAM.

    python benchmarks/bench_disk.py --folder DIR          a million tasks of the sine net, 7.1 GB
    python benchmarks/bench_disk.py --folder DIR --head   ten million whose head adapts, 1.7 GB

Each chunk of 1000 steps visits 3000 tasks at random. A checkpoint every so many chunks empties the
undo log, as in a run. *Cold* is without the system's cache: before each chunk it is asked to drop
the file. The side in memory has as many tasks as fit into `--ram`: what a step costs there does not
depend on their number (`bench_tasks.py`). Peak RSS is that of the side on disk alone, which goes
first. The folder is removed at the end.
"""

import argparse
import os
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax

from common import CHUNK, HYPER, LOSS, NET, interleave, machine, many_sines, ratio, table, training
from moml.algorithms.adapt import all_leaves, named
from moml.algorithms.recipes import method
from moml.run.disk import Disk, split
from moml.run.rows_file import layout_of
from moml.run.rows_on_disk import RowsOnDisk

SAVE = 20  # chunks from one checkpoint to the next


def peak() -> float:
    """The largest resident set so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def composed(n: int, head: bool, dtype: str) -> Any:
    leaves = named("head") if head else all_leaves
    more = {} if dtype == "float32" else {"memory_dtype": dtype}
    return method("moml-v1", LOSS, n=n, tasks_per_step=3, k=1, leaves=leaves, **more).algorithm


def on_disk(folder: Path, n: int, algorithm: Any, cold: bool) -> tuple[Disk, Any]:
    """The store, and a function that trains for another chunk."""
    tasks = many_sines(n)
    like = jax.eval_shape(algorithm.init, NET.init(jax.random.key(0)), HYPER)
    rows = split(like)[1]
    store = RowsOnDisk(folder, folder, n, layout_of(rows))
    disk = Disk(
        algorithm, tasks, store, like, jax.random.key(1), HYPER, steps=10**9, length=CHUNK
    ).__enter__()
    first = jax.jit(lambda: split(algorithm.init(NET.init(jax.random.key(0)), HYPER))[0])
    carry, done = first(), 0
    disk.begin(carry, None)
    disk.saving(0, [0])

    def call() -> None:
        nonlocal carry, done
        if cold:
            disk.store.file.drop()
        carry, _ = disk.run(carry, done, CHUNK)
        done += CHUNK
        if done % (SAVE * CHUNK) == 0:
            disk.saving(done, [done])

    return disk, call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=None, help="where the rows go")
    parser.add_argument("--head", action="store_true", help="ten million tasks, the head adapts")
    parser.add_argument("--tasks", type=int, default=None)
    parser.add_argument("--ram", type=int, default=100_000, help="tasks of the side in memory")
    parser.add_argument("--dtype", default="float32", help="or bfloat16")
    parser.add_argument("--turns", type=int, default=60)
    own = parser.parse_args()
    n = own.tasks or (10_000_000 if own.head else 1_000_000)
    folder = Path(tempfile.mkdtemp(dir=own.folder))
    try:
        measure(folder, n, own)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, n: int, own: Any) -> None:
    machine()
    disk, warm = on_disk(folder, n, composed(n, own.head, own.dtype), cold=False)
    for _ in range(own.turns):
        warm()
    size = os.path.getsize(folder / "rows")
    print(f"{n:,} tasks, {disk.store.layout.width} bytes each, {size / 2**30:.2f} GiB on disk")
    print(f"peak RSS {peak():.2f} GiB after {own.turns} chunks of {CHUNK} steps", flush=True)
    sides = {
        "in memory": training(composed(own.ram, own.head, own.dtype), many_sines(own.ram)),
        "on disk": warm,
    }
    timings = interleave(sides, turns=own.turns)
    table(timings)
    ratio("disk_over_ram", timings["on disk"], timings["in memory"])
    print(f"ratio of the medians {timings['on disk'].median / timings['in memory'].median:.3f}")
    disk.__exit__()


if __name__ == "__main__":
    main()
