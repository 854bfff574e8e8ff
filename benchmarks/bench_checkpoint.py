"""What checkpoints cost a run with 10^5 tasks of the sine net, whose memories are 0.7 GB.

A checkpoint is copied first, which blocks training, then written beside it, which slows it. So a
pair is a checkpoint with as many stretches of training as fit until it is written, and the same
stretches without. A run saves every 300 s by default; what that comes to is worked out from the
pairs, not run. Others at work on the machine blur the clock; processor time they blur less, and
where no core is idle a checkpoint slows training by as much of it. TMPDIR says which disk is
measured: 3 GB there, and 3 GB of memory. On a CPU training has all cores, as in `moml train`;
NPROC=1 in the environment leaves the others to the write.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("NPROC", str(os.cpu_count()))  # before JAX starts

import jax

from common import machine
from moml.config.config import Config
from moml.config.problems import Sine
from moml.runs.job import Job, single
from moml.storage.checkpoint import Checkpoints
from moml.training.execution import copy_arrays

PAIRS, TIMES, BUDGET = 6, 3, 45  # no further pair once so many seconds have gone by
# A small step and memories filled before training: all of them are numbers, and stay finite.
CONFIG = Config(Sine(n=100_000), method="moml-v1", eta=1e-4, eager=True)


class Pair(NamedTuple):
    """Seconds of one checkpoint, and of the same stretches without."""

    copy: float
    beside: float
    without: float
    processor: float  # what the checkpoint takes of it, on all cores together

    @property
    def slower(self) -> float:
        return self.beside - self.without

    @property
    def cost(self) -> float:
        return self.copy + self.slower

    @property
    def ratio(self) -> float:
        """Of a run with checkpoints over one without: its clock starts anew after each copy."""
        return (CONFIG.save_seconds + self.copy) / (CONFIG.save_seconds - self.slower)


class Training:
    """One run: `carry` is its state now."""

    def __init__(self, job: Job):
        self.job, self.done = job, 0
        self.carry = job.execution.first()

    def stretch(self) -> None:
        length = self.job.plan.length
        self.carry, _ = self.job.execution.advance(self.carry, self.done, length)
        jax.block_until_ready(self.carry)
        self.done += length


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def pair(run: Training, kept: Checkpoints) -> Pair:
    """A checkpoint with training beside it, then the same training alone."""
    processor = [time.process_time()]
    copy = seconds(lambda: kept.save(run.done, run.carry, {}))
    begin, stretches = time.perf_counter(), 0
    while kept.busy:
        run.stretch()
        stretches += 1
    beside = time.perf_counter() - begin
    kept.wait()  # raises what the write raised
    processor.append(time.process_time())
    without = seconds(lambda: [run.stretch() for _ in range(stretches)])
    processor.append(time.process_time())
    first, second, third = processor
    return Pair(copy, beside, without, (second - first) - (third - second))


def save(run: Training, kept: Checkpoints) -> None:
    """All on disk, with training stopped."""
    kept.save(run.done, run.carry, {})
    kept.wait()


def load(run: Training, kept: Checkpoints) -> None:
    """Verified, read, and on the device."""
    found = kept.load(run.carry)
    jax.block_until_ready(copy_arrays(found.state))


def forget(folder: Path) -> None:
    """Ask the system to drop the files of a folder from its page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def line(name: str, values: list[float]) -> None:
    least, middle, most = min(values), statistics.median(values), max(values)
    print(f"{name:<40}  {middle:7.2f}  {least:7.2f}  {most:7.2f}  {len(values):5}", flush=True)


def load_average() -> None:
    print(f"load average {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    machine()
    load_average()
    run = Training(single(CONFIG))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(run.carry))
    print(f"{size / 1e6:.0f} MB of state, {run.job.plan.length} iterations in a stretch")
    for _ in range(3):  # compile, and touch what is touched only once
        run.stretch()
    print(f"{'seconds':<40}  {'median':>7}  {'least':>7}  {'most':>7}  {'times':>5}")
    with tempfile.TemporaryDirectory() as folder, Checkpoints(folder, CONFIG.keep) as kept:
        line("save, the first of a process", [seconds(lambda: save(run, kept))])
        pairs, begin = [pair(run, kept)], time.perf_counter()
        while len(pairs) < PAIRS and time.perf_counter() - begin < BUDGET:
            pairs.append(pair(run, kept))
        line("a stretch without checkpoints", [seconds(run.stretch) for _ in range(50)])
        line("save, training stopped", [seconds(lambda: save(run, kept)) for _ in range(TIMES)])
        line("load, just written", [seconds(lambda: load(run, kept)) for _ in range(TIMES)])
        from_disk = []
        for _ in range(TIMES):
            forget(Path(folder))
            from_disk.append(seconds(lambda: load(run, kept)))
        line("load, from disk", from_disk)
    line("training blocked by the copy", [p.copy for p in pairs])
    line("the write beside training", [p.beside for p in pairs])
    line("the same training without", [p.without for p in pairs])
    line("training slower by the write", [p.slower for p in pairs])
    line("a checkpoint costs, both together", [p.cost for p in pairs])
    line("processor time of a checkpoint", [p.processor for p in pairs])
    load_average()
    low, middle, high = (
        100 * (of(p.ratio for p in pairs) - 1) for of in (min, statistics.median, max)
    )
    print(
        f"a checkpoint every {CONFIG.save_seconds:g} s makes a run {middle:.2f} % longer, "
        f"by the median of the pairs; they range from {low:.2f} to {high:.2f} %"
    )
    taken = statistics.median(p.processor for p in pairs) / CONFIG.save_seconds
    print(f"its processor time is {100 * taken:.2f} % of one core's in that time")
    print(f"ratio with_checkpoints_over_without {statistics.median(p.ratio for p in pairs):.4f}")


if __name__ == "__main__":
    main()
