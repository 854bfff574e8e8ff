"""What the benchmarks share: the sine problem, a clock that interleaves the sides, a table.

Machines are noisy, so the sides of a comparison take turns in one process and each keeps its best.
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# One thread runs a step of this size best: XLA hands its pieces of well under a microsecond from
# thread to thread otherwise. NPROC=2 in the environment measures that.
os.environ.setdefault("NPROC", "1")

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from moml.methods import method
from moml.models import mlp, mse
from moml.runtime import simulate
from moml.tasks.sine import sine
from moml.types import Algorithm, Hyper, Tasks

NET = mlp(1, 40, 40, 1)
LOSS = mse(NET.predict)
HYPER = Hyper(eta=0.005, beta=0.3, alpha=0.01)
CHUNK = 1000  # steps in one compiled stretch


class Timing(NamedTuple):
    """Microseconds per iteration."""

    best: float
    median: float


def machine(**versions: str) -> None:
    """One line: processor, cores, versions, device."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((s.split(":")[1].strip() for s in lines if s.startswith("model name")), cpu)
    parts = [f"{name} {version}" for name, version in {"jax": jax.__version__, **versions}.items()]
    device = f"jax device {jax.devices()[0].device_kind}"
    threads = f"XLA threads {os.environ['NPROC']}"
    print(f"{cpu}, {os.cpu_count()} cores, {', '.join(parts)}, {device}, {threads}", flush=True)


def many_sines(n: int) -> Tasks:
    """N different tasks of the paper's kind."""
    a_key, p_key = jax.random.split(jax.random.key(7))
    amplitude = jax.random.uniform(a_key, (n,), minval=1.0, maxval=5.0)
    phase = jax.random.uniform(p_key, (n,), minval=jnp.pi / 5, maxval=jnp.pi)
    return sine(amplitude, phase)


def sine_method(name: str, tasks: Tasks, **options: Any) -> Algorithm:
    """A method on sine with the paper's B = 3, K = 1."""
    return method(name, LOSS, n=tasks.n, tasks_per_step=3, k=1, **options).algorithm


def training(algorithm: Algorithm, tasks: Tasks, hyper: Hyper = HYPER) -> Callable[[], None]:
    """One run of `algorithm`: a call trains it for another chunk."""
    return train_by(program_of(algorithm, tasks), algorithm, hyper)


def program_of(algorithm: Algorithm, tasks: Tasks, *, members: bool = False) -> Callable[..., Any]:
    """The program for these tasks: (state, key, start, hyper, length) -> (state, info)."""
    program = simulate.program(algorithm, members=members)
    return lambda state, key, start, hyper, length: program(
        state, tasks, key, start, hyper, length, length
    )


def train_by(program: Any, algorithm: Algorithm, hyper: Hyper) -> Callable[[], None]:
    """The same with a program of one's own, (state, key, start, hyper, length) -> (state, info)."""
    state = jax.jit(algorithm.init)(NET.init(jax.random.key(0)), hyper)
    return advance(program, state, jax.random.key(1), hyper)


def advance(program: Any, state: Any, key: Any, hyper: Hyper) -> Callable[[], None]:
    """A call runs the program from where the last call left the state."""
    start = 0

    def call() -> None:
        nonlocal state, start
        state, info = program(state, key, start, hyper, CHUNK)
        jax.block_until_ready((state, info))
        start += CHUNK

    return call


def interleave(
    sides: dict[str, Callable[[], None]], iterations: dict[str, int] | int = CHUNK, turns: int = 30
) -> dict[str, Timing]:
    """Time the sides in turns, A B A B ...; `iterations` is what one call makes."""
    for call in sides.values():  # compile, and touch what is touched only once
        call()
        call()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, call in sides.items():
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    counts = dict.fromkeys(sides, iterations) if isinstance(iterations, int) else iterations
    return {
        name: Timing(min(s) * 1e6 / counts[name], statistics.median(s) * 1e6 / counts[name])
        for name, s in seconds.items()
    }


def table(timings: dict[str, Timing]) -> None:
    """Best and median of each side."""
    width = max(map(len, timings))
    print(f"{'us per iteration':{width}}  {'best':>9}  {'median':>9}")
    for name, t in timings.items():
        print(f"{name:{width}}  {t.best:9.2f}  {t.median:9.2f}")


def ratio(name: str, over: Timing, under: Timing) -> None:
    """The line that a machine reads: best over best."""
    print(f"ratio {name} {over.best / under.best:.3f}", flush=True)
