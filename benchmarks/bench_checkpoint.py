"""The cost of checkpoints in a run with 10^5 tasks of the sine net, whose memories are 0.7 GB.

A checkpoint is copied first, which blocks training, then written in the background, which slows it.
So a pair is a checkpoint with as many stretches of training as fit until it is written, and the
same stretches without. A run saves every 300 s by default; what that adds up to is computed from
the pairs. Other programs disturb the clock; they disturb processor time less, and where no core is
idle a checkpoint slows training by as much of it. TMPDIR selects the disk: 5 GB there, and 3 GB of
memory. On a CPU training has all cores, as in `moml train`; NPROC=1 in the environment leaves the
others to the write.

The same state is then saved and loaded by orbax (`pip install 'moml[bench]'`), in turns with ours,
training stopped: both write it uncompressed, seal it with SHA-256, sync it and rename it, and both
verify the seal before they read. `--formats` runs that part alone.
"""

import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("NPROC", str(os.cpu_count()))  # before JAX starts

import jax
import numpy as np

from common import machine
from moml.config.config import Config
from moml.config.problems import Sine
from moml.runs.job import Job, single
from moml.runs.session import strong
from moml.storage.checkpoint import Checkpoints
from moml.storage.manifest import seal, sync_folder, verify

PAIRS, TIMES, BUDGET = 6, 3, 45  # no further pair once so many seconds have gone by
# A small step and memories filled before training: all of them are numbers, and stay finite.
CONFIG = Config(Sine(n=100_000), method="moml-v1", eta=1e-4, eager=True)


class Pair(NamedTuple):
    """Seconds of one checkpoint, and of the same stretches without it."""

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
        self.carry = strong(job.first())

    def stretch(self) -> None:
        self.carry, _ = self.job.stretch(self.carry, self.done, self.job.length)
        jax.block_until_ready(self.carry)
        self.done += self.job.length


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
    jax.block_until_ready(strong(found.state))


class Orbax:
    """The peer: the arrays by orbax, sealed and renamed as ours are."""

    def __init__(self, folder: Path):
        import orbax.checkpoint as ocp

        logging.getLogger("absl").setLevel(logging.CRITICAL)
        self.ocp, self.folder = ocp, folder / "state"
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=True, use_compression=False)
        self.checkpointer = ocp.Checkpointer(handler)

    def save(self, carry: Any) -> None:
        leaves = {str(i): np.array(leaf) for i, leaf in enumerate(jax.tree.leaves(carry))}
        partial = self.folder.with_name(".writing")
        self.checkpointer.save(partial, args=self.ocp.args.PyTreeSave(leaves))
        seal(partial)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.rename(partial, self.folder)
        sync_folder(self.folder.parent)

    def load(self, carry: Any) -> None:
        if problem := verify(self.folder):
            raise ValueError(problem)
        leaves, tree = jax.tree.flatten(carry)
        each = {str(i): self.ocp.RestoreArgs(restore_type=np.ndarray) for i in range(len(leaves))}
        how = self.ocp.args.PyTreeRestore(restore_args=each)
        found = self.checkpointer.restore(self.folder, args=how)
        state = jax.tree.unflatten(tree, [found[str(i)] for i in range(len(leaves))])
        jax.block_until_ready(strong(state))


def formats(run: Training) -> None:
    """Saves and loads of both formats, in turns."""
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        kept, peer = Checkpoints(ours, 1), Orbax(Path(theirs))
        cold = lambda call: lambda: (forget(Path(ours)), forget(Path(theirs)), seconds(call))[-1]
        sides: dict[str, dict[str, Callable[[], float]]] = {
            "save": {
                "ours": lambda: seconds(lambda: save(run, kept)),
                "orbax": lambda: seconds(lambda: peer.save(run.carry)),
            },
            "load, just written": {
                "ours": lambda: seconds(lambda: load(run, kept)),
                "orbax": lambda: seconds(lambda: peer.load(run.carry)),
            },
            "load, from disk": {
                "ours": cold(lambda: load(run, kept)),
                "orbax": cold(lambda: peer.load(run.carry)),
            },
        }
        for what, each in sides.items():
            took: dict[str, list[float]] = {name: [] for name in each}
            for turn in range(2 * TIMES + 1):
                for name, call in each.items():
                    value = call()
                    if turn:  # the first imports and warms up
                        took[name].append(value)
            for name, values in took.items():
                line(f"{what}, {name}", values)
            middle = statistics.median(took["ours"]) / statistics.median(took["orbax"])
            best = min(took["ours"]) / min(took["orbax"])
            name = what.replace(", ", "_").replace(" ", "_")
            print(f"ratio {name}_ours_over_orbax {middle:.3f} (of the best {best:.3f})", flush=True)
        kept.close()


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
    print(f"{size / 1e6:.0f} MB of state, {run.job.length} iterations in a stretch")
    for _ in range(3):  # compile, and touch what is touched only once
        run.stretch()
    print(f"{'seconds':<40}  {'median':>7}  {'least':>7}  {'most':>7}  {'times':>5}")
    formats(run)
    if "--formats" in sys.argv[1:]:
        return
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
