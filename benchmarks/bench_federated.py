"""A round of clients in PyTorch, client after client, and in Flower's simulation, over ours.

FedAvg, Per-FedAvg (exact) and LocalMOML on pictures of CIFAR's shape, net 3072-40-40-10, K = 5,
H = 10, all clients in every round. The PyTorch loop is given its draws, ours makes its own. Before
a clock starts, both compute the first round from one start and one draw and must agree to 1e-5, and
so must Flower's first round. Ours and the loop take turns, on one thread each (NPROC=2 gives both
two); ratios are of medians. `all-at-once` is ours without slices. Flower runs next, with an actor
on every core; it is left out where `flwr[simulation]` is not installed. Pictures are CIFAR-10's
where MOML_DATA has them, else random; INPUTS=64 in the environment takes 64 values of each instead
of all 3072, for a small network.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from clients import (
    EACH,
    INPUTS,
    Setting,
    agree,
    arrays,
    checked,
    drawn,
    our_side,
    ours,
    pictures,
    seconds_of,
    setting,
)
from common import machine

TURNS = {20: 9, 100: 5, 500: 3}
TIMED = ("fedavg", "per-fedavg", "localmoml")
FLOWERS = ("fedavg", "per-fedavg")
FLOWER_ROUNDS = 5


def in_turns(name: str, s: Setting, turns: int) -> tuple[dict[str, float], list[np.ndarray]]:
    """Median seconds of a round of every side; the model after the first."""
    moml, loop, first = checked(name, s)
    rounds = max(2, 200 // s.clients)  # ours, in one call
    sides = {"moml": (lambda: moml(rounds), rounds), "torch-loop": (loop, 1)}
    if name == "fedavg":  # ours, by one vmap over all clients
        wide = our_side(name, s, at_once=s.clients)
        agree(f"all-at-once {name} {s.clients} clients", first, arrays(wide(1)), s.start)
        sides["all-at-once"] = lambda: wide(1), 1
    moml(rounds)
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(turns):
        for side, (call, count) in sides.items():
            taken[side].append(seconds_of(call) / count)
    return {side: statistics.median(seconds) for side, seconds in taken.items()}, first


def by_flower(s: Setting, names: Sequence[str]) -> dict[str, np.ndarray]:
    """What `flower_rounds.py` leaves."""
    given = {"x": s.x, "y": s.y, "clients": s.clients, "methods": np.array(names)}
    given |= {"rounds": FLOWER_ROUNDS} | {f"w{i}": w for i, w in enumerate(s.start)}
    for name in names:
        rows = drawn(ours(name, s.clients), s.tasks, FLOWER_ROUNDS)
        given |= {f"{name}/{part}": own for part, own in rows.items()}
    script = Path(__file__).parent / "flower_rounds.py"
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "problem.npz", **given)
        command = [sys.executable, str(script), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        outcome = Path(folder) / "outcome.npz"
        if done.returncode or not outcome.exists():
            raise SystemExit(f"Flower ended with {done.returncode}:\n{done.stderr[-2000:]}")
        with np.load(outcome) as file:
            return dict(file)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--clients", type=int, nargs="+", default=[20, 100, 500])
    given.add_argument("--methods", nargs="+", default=list(TIMED), choices=TIMED)
    given.add_argument("--turns", type=int, help="by default 9 at 20 clients, fewer at more")
    given.add_argument("--no-flower", action="store_true")
    a = given.parse_args()
    have = find_spec("flwr") is not None and find_spec("ray") is not None
    flower = have and not a.no_flower
    machine(torch=torch.__version__, **({"flwr": version("flwr")} if flower else {}))
    print(f"load average {os.getloadavg()[0]:.1f}, {pictures(EACH)[0]}, {INPUTS} inputs")
    if not have:
        print("Flower left out: pip install 'flwr[simulation]' measures it too")
    checked("per-fedavg first-order", setting(min(a.clients)))
    for clients in a.clients:
        s, firsts = setting(clients), {}
        seconds: dict[str, dict[str, float]] = {}
        for name in a.methods:
            turns = a.turns or TURNS.get(clients, 3)
            seconds[name], firsts[name] = in_turns(name, s, turns)
        asked = [name for name in a.methods if name in FLOWERS]
        if flower and asked:
            outcome = by_flower(s, asked)
            for name in asked:
                model = [outcome[f"{name}/w{i}"] for i in range(len(s.start))]
                agree(f"flower {name} {clients} clients", firsts[name], model, s.start)
                seconds[name]["flower"] = statistics.median(outcome[f"{name}/seconds"][1:])
        for name, sides in seconds.items():
            each = ", ".join(f"{side} {1 / t:.2f}" for side, t in sides.items())
            print(f"{name}, {clients} clients, rounds a second: {each}")
            for side in list(sides)[1:]:
                over = sides[side] / sides["moml"]
                print(f"ratio {side}/moml {name} {clients} clients: {over:.1f}x", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
