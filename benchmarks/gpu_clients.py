"""Growth with the clients: of a round, and in all. For a GPU; a processor tries smaller numbers.

    python benchmarks/gpu_clients.py            rounds and clients a second, memory of the program
    python benchmarks/gpu_clients.py --torch    and PyTorch's loop on the same device, 20 and 100

Net 3072-40-40-10 on pictures of CIFAR's shape, K = 5, H = 10. First all clients in every round,
then 100 of ever more clients whose memories are carried from round to round. `MB` is the compiler's
own count: state, pictures, and what the program needs besides. What does not fit into `--seconds`
is left out by name.
"""

import argparse
import statistics
import time
from typing import Any

import jax
import torch

from clients import HYPER, KEY, NET, Setting, checked, ours, pictures, seconds_of, setting
from common import machine
from moml.runtime import simulate

METHODS = ("fedavg", "per-fedavg", "localmoml")
GPU = jax.default_backend() == "gpu"
SIZES = [20, 100, 500, 2_000, 10_000] if GPU else [20, 100]
TOTALS = [100, 1_000, 10_000] if GPU else [100, 500]
SAMPLED = 100 if GPU else 20
AGAINST = [20, 100] if GPU else [20]


def measure(name: str, s: Setting, sampled: int | None = None) -> tuple[float, float]:
    """Median seconds of a round, and megabytes."""
    algorithm = ours(name, s.clients, sampled)
    rounds = max(2, min(20, 4_000 // (sampled or s.clients)))  # in one call
    state = jax.jit(algorithm.init)(NET.init(jax.random.key(0)), HYPER)
    program, key = simulate.program(algorithm), jax.random.key(KEY)
    need = program.lower(state, s.tasks, key, HYPER, rounds)[1].compile().memory_analysis()
    held = [state]
    del state

    def call(t: int) -> None:
        held.append(program(held.pop(), s.tasks, key, t, HYPER, rounds, rounds)[0])
        jax.block_until_ready(held)

    call(0)
    seconds = statistics.median(seconds_of(call, t * rounds) for t in (1, 2, 3)) / rounds
    return seconds, (need.argument_size_in_bytes + need.temp_size_in_bytes) / 1e6


def against(name: str, s: Setting) -> str:
    """PyTorch's loop over ours; the check in full single precision, the clock as both come."""
    torch.set_float32_matmul_precision("highest")
    with jax.default_matmul_precision("highest"):
        _, loop, _ = checked(name, s, "cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")  # TF32, as JAX has it
    theirs = statistics.median(seconds_of(loop) for _ in range(3))
    over = theirs / measure(name, s)[0]
    return f"ratio torch-loop/moml {name} {s.clients} clients: {over:.1f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["fedavg", "per-fedavg"], choices=METHODS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="clients of a round")
    parser.add_argument("--totals", type=int, nargs="*", default=TOTALS, help="clients in all")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--seconds", type=float, default=150)
    a = parser.parse_args()
    begin, settings = time.perf_counter(), {}
    machine(torch=torch.__version__)
    print(pictures(1)[0])

    def known(clients: int) -> Setting:
        if clients not in settings:
            settings[clients] = setting(clients)
        return settings[clients]

    def row(name: str, clients: int, sampled: int | None = None) -> None:
        if time.perf_counter() - begin > a.seconds:
            print(f"{name:18}{clients:>9}  left out, {a.seconds:.0f} s are over", flush=True)
            return
        seconds, size = measure(name, known(clients), sampled)
        some = sampled or clients
        rates = f"{1 / seconds:>11.2f}{some / seconds:>12.0f}{size:>11.0f}"
        print(f"{name:18}{clients:>9}{some:>9}{rates}", flush=True)

    columns = ("in all", 9), ("a round", 9), ("rounds/s", 11), ("clients/s", 12), ("MB", 11)
    print(f"{'':18}" + "".join(f"{title:>{width}}" for title, width in columns))
    for name in a.methods:
        for clients in a.sizes:
            row(name, clients)
    for clients in a.totals:
        row("localmoml carried", clients, min(SAMPLED, clients))
    stats: Any = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        print(f"most memory in use {stats['peak_bytes_in_use'] / 1e9:.1f} GB")
    if a.torch:
        lines = [against(name, known(clients)) for name in a.methods for clients in AGAINST]
        print(*lines, sep="\n")
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
