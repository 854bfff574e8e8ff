"""MOML v1 with the memories on disk over the same in memory, B = 3, and what it takes of RAM.

    python benchmarks/bench_disk.py --folder DIR          a million tasks of the sine net, 7.1 GB
    python benchmarks/bench_disk.py --folder DIR --head   ten million whose head adapts, 1.7 GB

A step is some 20 us of arithmetic for 21 kB of rows: few uses of memories ask more of a disk.
Every row is written once before, so that the undo log has to take all of them, as late in a run.
*Cached*: the system has the file in its cache, as far as it likes. *Cold*: it is asked to drop the
file before each turn, so that every row comes from the disk. A turn is 5,000 steps that visit
15,000 tasks at random, until all is written. *Rows alone* and *log alone* is what the disk takes of
a cold turn without any training: as many rows are read, as many are brought to an undo log. Peak
RSS is read before the side in memory begins. The files are removed at the end.
"""

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from common import CHUNK, HYPER, LOSS, NET, Timing, machine, many_sines, ratio, table, training
from moml.algorithms.parts.adapt import all_leaves, named
from moml.methods import method
from moml.storage.rows_file import layout_of
from moml.storage.rows_on_disk import RowsOnDisk
from moml.storage.undo import Undo
from moml.training.disk import OnDisk, split
from moml.types import Algorithm, Tasks

SPAN = 5  # chunks in a turn


def composed(n: int, head: bool, dtype: str) -> Algorithm:
    leaves = named("head") if head else all_leaves
    options: dict[str, Any] = {"leaves": leaves, "memory_dtype": dtype}
    return method("moml-v1", LOSS, n=n, tasks_per_step=3, k=1, **options).algorithm


def opened(folder: Path, algorithm: Algorithm, tasks: Tasks) -> tuple[OnDisk, Any]:
    """A new store with no row of zeros, and the first carry."""
    params = NET.init(jax.random.key(0))
    rows = split(jax.eval_shape(algorithm.init, params, HYPER))[1]
    store = RowsOnDisk(folder, folder, tasks.n or 0, layout_of(rows))
    key = jax.random.key(1)
    disk = OnDisk(algorithm, tasks, store, params, key, HYPER, steps=10**9, length=CHUNK)
    carry = disk.first()
    apart = max(2, store.n // 10_000)
    for first in range(apart):  # rows apart from each other, as training writes them
        ids = np.arange(first, store.n, apart)
        leaves = [
            np.full(
                (len(ids), *leaf.shape[1:]), 1e-3 if leaf.dtype == np.float32 else 1, leaf.dtype
            )
            for leaf in jax.tree.leaves(rows)
        ]
        store.file.write(ids, store.pack(leaves, ids))
    disk.snapshot(carry, 0, [0])
    return disk, carry


def trained(disk: OnDisk, carry: Any) -> Callable[..., None]:
    """A call trains for another turn, or so many chunks; at its end all is written."""
    done = 0

    def turn(chunks: int = SPAN) -> None:
        nonlocal carry, done
        for _ in range(chunks):
            carry, _ = disk.advance(carry, done, CHUNK)
            done += CHUNK
        disk.settle()

    return turn


def alone(store: RowsOnDisk) -> dict[str, tuple[Callable[[], None], Callable[[], Any]]]:
    """What the disk does in a cold turn, without the training; and what comes before each."""
    draws = np.random.default_rng(0)
    log = Undo(store.folder / "log", 0)
    pieces: list[np.ndarray] = []
    rows: list[np.ndarray] = []

    def drawn() -> None:
        store.file.drop()
        pieces[:] = [np.unique(draws.integers(0, store.n, 3 * CHUNK)) for _ in range(SPAN)]

    def read() -> list[np.ndarray]:
        return [store.read(ids) for ids in pieces]

    def fetched() -> None:
        drawn()
        rows[:] = read()

    def logged() -> None:
        for ids, some in zip(pieces, rows, strict=True):
            log.add(ids, some)

    return {"rows alone, cold": (drawn, read), "log alone": (fetched, logged)}


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=None, help="where the rows go")
    parser.add_argument("--head", action="store_true", help="ten million tasks, the head adapts")
    parser.add_argument("--tasks", type=int, default=None)
    parser.add_argument("--dtype", default="float32", help="or bfloat16")
    parser.add_argument("--turns", type=int, default=40)
    own = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=own.folder))
    try:
        measure(folder, own)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, own: Any) -> None:
    machine()
    n = own.tasks or (10_000_000 if own.head else 1_000_000)
    algorithm, tasks = composed(n, own.head, own.dtype), many_sines(n)
    disk, carry = opened(folder, algorithm, tasks)
    on_disk = trained(disk, carry)
    for _ in range(3):
        on_disk()
    size = os.path.getsize(folder / "rows") / 2**30
    store = disk.store
    print(f"{n:,} tasks, {store.layout.width} bytes each, {size:.2f} GiB on disk")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak RSS {peak:.2f} GiB", flush=True)
    in_memory = training(algorithm, tasks)
    ram = lambda: [in_memory() for _ in range(SPAN)] and None
    sides = {"in memory": (lambda: None, ram), "on disk, cached": (lambda: None, on_disk)}
    timings = turns(sides, own.turns)
    saving = timed(lambda: disk.snapshot(carry, 1, [1]))

    def drop() -> None:
        store.file.drop()
        on_disk(1)  # whose rows were read before, but are no longer in the cache when written

    sides = {"in memory, again": sides["in memory"], "on disk, cold": (drop, on_disk)}
    timings |= turns(sides, own.turns)
    timings |= turns(alone(store), own.turns)
    disk.close()
    table(timings)
    print(f"all rows of {own.turns * SPAN} chunks to the disk, for a checkpoint: {saving:.2f} s")
    ratio("disk_cached_over_ram", timings["on disk, cached"], timings["in memory"])
    ratio("disk_cold_over_ram", timings["on disk, cold"], timings["in memory, again"])
    for way, memory in (("cached", "in memory"), ("cold", "in memory, again")):
        medians = timings[f"on disk, {way}"].median / timings[memory].median
        print(f"of the medians, {way}: {medians:.2f}", flush=True)


def turns(sides: dict[str, Any], count: int) -> dict[str, Timing]:
    """Best and median of each side, in turns; what comes before a turn is not timed."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(count + 1):
        for name, (before, call) in sides.items():
            before()
            took = timed(call)
            if turn:  # the first compiles
                seconds[name].append(took * 1e6 / (SPAN * CHUNK))
    return {name: Timing(min(s), statistics.median(s)) for name, s in seconds.items()}


if __name__ == "__main__":
    main()
