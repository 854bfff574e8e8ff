"""What many devices would cost: a step on one device, the bytes that it sums, and a sum by itself.

    python benchmarks/bench_mesh.py           steps on this device, sums of two processes here
    python benchmarks/bench_mesh.py --alone   only the steps

`plain` is a step of `runtime.simulate`, `mesh` the same through `runtime.sharded` on a mesh of one
device, in turns. The sums are all-reduces between two processes on 127.0.0.1: what software takes
of a sum at least, without a network. Two processes share two cores with nothing else, so no speed
of several devices is measured, and none is claimed.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import clients
from common import LOSS, NET, interleave, machine, many_sines
from moml.methods import method
from moml.runtime import sharded, simulate
from moml.runtime.account import all_reduced
from moml.runtime.mesh import mesh, task_data
from moml.types import Algorithm, Hyper, Tasks

STEP = jax.tree.map(jnp.float32, Hyper(eta=0.005, beta=0.3, alpha=0.01))


def cases() -> dict[str, tuple[Algorithm, Tasks, Any, Hyper, int]]:
    """Method, tasks, first parameters, step sizes, steps of a call."""
    sines = many_sines(100_000)
    made = {}
    for tasks in (3, 64):
        chosen = method("moml-v1", LOSS, n=sines.n, tasks_per_step=tasks, k=1).algorithm
        made[f"moml-v1, sine net, B = {tasks}"] = chosen, sines, NET.init, STEP, 1000
    s = clients.setting(100)
    name = "per-fedavg, 3072-40-40-10, B = 100"
    made[name] = clients.ours("per-fedavg", 100), s.tasks, clients.NET.init, clients.HYPER, 4
    return made


def steps() -> None:
    """One device: both ways, and the bytes of a step's sum."""
    one = mesh(1)
    print(f"{'us a step':38}{'plain':>10}{'mesh':>10}{'d':>10}{'bytes summed':>14}")
    for name, (algorithm, tasks, init, hyper, length) in cases().items():
        key, params = jax.random.key(1), init(jax.random.key(0))
        data, run = task_data(tasks, one), sharded.program(algorithm, one)
        state = sharded.first(algorithm, one)(params, hyper)
        given = (data, sharded.without_data(tasks), key, jnp.int32(0), hyper, jnp.int32(length))
        onto = run.lower(state, *given, length).compile()
        off = simulate.program(algorithm)
        both = {"mesh": state, "plain": jax.jit(algorithm.init)(params, hyper)}

        def turn(
            side: str, *, onto=onto, off=off, both=both, given=given, length=length, tasks=tasks,
            key=key, hyper=hyper,
        ) -> None:  # fmt: skip
            if side == "mesh":
                both[side] = onto(both[side], *given)[0]
            else:
                both[side] = off(both[side], tasks, key, 0, hyper, length, length)[0]
            jax.block_until_ready(both[side])

        sides = {side: lambda side=side, turn=turn: turn(side) for side in both}
        times = interleave(sides, length, turns=10)
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        row = f"{times['plain'].best:>10.1f}{times['mesh'].best:>10.1f}{size:>10,}"
        print(f"{name:38}{row}{all_reduced(onto):>14,}", flush=True)


def two_processes() -> None:
    """Start both, and show what the first has found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, Path(__file__).with_name("mesh_sums.py"), address]
    pair = [
        subprocess.Popen(
            [*command, str(i)], env=os.environ | {"JAX_PLATFORMS": "cpu"}, stdout=subprocess.PIPE
        )
        for i in (0, 1)
    ]
    try:
        said = [process.communicate(timeout=300)[0] for process in pair]
    finally:
        for process in pair:
            process.kill()
    print(f"{'all-reduce, 2 processes, gloo':38}{'best us':>10}{'median':>10}")
    for size, (best, median) in json.loads(said[0].splitlines()[-1]).items():
        print(f"{int(size):>24,} bytes{best:>18.0f}{median:>10.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args()
    machine()
    steps()
    if not given.alone:
        two_processes()


if __name__ == "__main__":
    main()
