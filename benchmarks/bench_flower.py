"""Rounds of real processes under Flower: seconds with a cold and a warm cache, bytes on the wire.

A SuperLink and SuperNodes on this machine, with TLS. The nodes reach the SuperLink through a proxy
that counts every byte of both directions: all that a network would carry, polls, heartbeats and
encryption included.

    python benchmarks/bench_flower.py --nodes 3 --rounds 4
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from common import machine
from moml.config.config import check
from moml.config.starts import STARTS
from moml.flower.app.learning import server_of
from moml.flower.local import deploy, run
from moml.flower.local.folder import init
from moml.runtime.account import nbytes
from proxy import Proxy


def measured(places, rounds, wire):
    """One run: its seconds outside of rounds, and the seconds and bytes of each round."""
    folder, _ = run.new(places, {"rounds": rounds})
    rows, marks = [], []

    def show(row):
        rows.append(row)
        marks.append(wire.up + wire.down)

    began, first = time.monotonic(), wire.up + wire.down
    run.run(places, folder, show)
    seconds = [row["seconds"] for row in rows]
    sent = [int(size) for size in np.diff([first, *marks])]
    return time.monotonic() - began - sum(seconds), seconds, sent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--hidden", type=int, nargs="*", default=[512, 512])
    given = parser.parse_args()
    start = STARTS["synthetic-clients"]
    problem = replace(start.problem, hidden=tuple(given.hidden))
    config = check(replace(start, problem=problem, tasks_per_step=problem.n))
    model = nbytes(server_of(config).meta)
    wires = []

    def through(places, now, name, own=deploy._node_command):
        if not wires:
            wires.append(Proxy(now.ports[0]))
        return own(places, replace(now, ports=[wires[0].port, *now.ports[1:]]), name)

    deploy._node_command = through
    with tempfile.TemporaryDirectory() as folder:
        places = init(Path(folder) / "federation", config)
        began = time.monotonic()
        try:
            deploy.up(places, given.nodes, True, shown=True)
            started = time.monotonic() - began
            cold = measured(places, given.rounds, wires[0])
            warm = measured(places, given.rounds, wires[0])
        finally:
            deploy.down(places)
    what = f"{given.nodes} nodes, {problem.n} tasks in a round, w of {model:,} bytes, TLS"
    machine(flwr=version("flwr"))
    print(f"{config.method}, {what}; SuperLink and nodes up in {started:.1f} s")
    print(f"{'cache':<8}{'outside':>9}{'round 1':>9}{'others':>9}   seconds; others: median")
    for name, (outside, seconds, _) in (("cold", cold), ("warm", warm)):
        rest = statistics.median(seconds[1:]) if seconds[1:] else float("nan")
        print(f"{name:<8}{outside:>9.1f}{seconds[0]:>9.1f}{rest:>9.1f}")
    least = 2 * given.nodes * model
    sent = warm[2]
    rest = statistics.median(sent[1:]) if sent[1:] else float("nan")
    told = f"{sent[0]:,} in round 1, {rest:,.0f} in the others"
    print(f"bytes on the wire, both ways: {told}; w to and from each node: {least:,}")
    print(f"that is {rest / least:.3f} times as much")


if __name__ == "__main__":
    main()
