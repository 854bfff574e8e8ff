"""A round of clients in PyTorch, client after client, and in Flower's simulation, over ours.

FedAvg, Per-FedAvg (exact) and LocalMOML on pictures of CIFAR's shape, net 3072-40-40-10, K = 5,
H = 10, all clients in every round. The PyTorch loop is given its draws, ours makes its own. Before
a clock starts, both compute the first round from one start and one draw and must agree to 1e-5, and
so must Flower's first round. Ours and the loop take turns, on one thread each (NPROC=2 gives both two); ratios are of medians.
Flower runs next, with an actor on every core; it is left out where `flwr[simulation]` is not
installed. Pictures are CIFAR-10's where MOML_DATA has them, else random.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from common import machine
from moml.algorithms.recipes import method
from moml.data.sets import load
from moml.models import cross_entropy, mlp
from moml.runtime.simulate import compiled, stretch
from moml.tasks.clients import from_rows
from moml.tasks.sampler import draw
from moml.types import Algorithm, Hyper, Tasks
from torch_clients import ALPHA, BETA, ETA, a_round, batches, tensors

NET = mlp(3072, 40, 40, 10)
LOSS = cross_entropy(NET.predict)
HYPER = jax.tree.map(jnp.float32, Hyper(eta=ETA, beta=BETA, alpha=ALPHA))
EACH, K, H, KEY = 20, 5, 10, 1  # images of a client; samples; local steps
TURNS = {20: 9, 100: 5, 500: 3}
TIMED = ("fedavg", "per-fedavg", "localmoml")
FLOWERS = ("fedavg", "per-fedavg")
FLOWER_ROUNDS = 5
KIND = "CIFAR-10" if os.environ.get("MOML_DATA") else "random"


def pictures(clients: int) -> tuple[np.ndarray, np.ndarray]:
    """EACH images for every client: bytes [rows, 3072], labels."""
    rows = clients * EACH
    if KIND == "CIFAR-10":
        images = load("cifar-10", "train")
        return images.x[:rows].reshape(rows, 3072), images.y[:rows].astype(np.int64)
    random = np.random.default_rng(0)
    return random.integers(0, 256, (rows, 3072), np.uint8), random.integers(0, 10, rows)


def ours(name: str, clients: int) -> Algorithm:
    name, *order = name.split()
    options = {"curvature": order[0]} if order else {}
    shape = {"n": clients, "tasks_per_step": clients, "k": K, "local_steps": H}
    return method(name, LOSS, **shape, **options).algorithm


def drawn(algorithm: Algorithm, tasks: Tasks, rounds: int) -> dict[str, np.ndarray]:
    """What each client draws in the first rounds, as rows of all pictures: [rounds, clients, ...].

    All clients take part, so they stand in order.
    """
    key = lambda t: jax.random.fold_in(jax.random.key(KEY), t)
    one = lambda t: draw(key(t), algorithm.needs, tasks).task
    task = jax.jit(jax.vmap(one))(jnp.arange(rounds))._asdict()
    rows = {part: np.asarray(own) for part, own in task.items() if own is not None}
    first = lambda own: EACH * np.arange(own.shape[1]).reshape(1, -1, *(1,) * (own.ndim - 2))
    return {part: own + first(own) for part, own in rows.items()}


def of_round(rows: dict[str, np.ndarray], t: int) -> list[dict[str, torch.Tensor]]:
    clients = len(rows["support"][t])
    return [{p: torch.tensor(own[t, i]) for p, own in rows.items()} for i in range(clients)]


def agree(what: str, mine: Any, theirs: Any, start: Any) -> None:
    """Both models after a round, to 1e-5, or an end."""
    far = lambda a, b: max(float(np.abs(p - q).max()) for p, q in zip(a, b, strict=True))
    apart, moved = far(mine, theirs), far(mine, start)
    print(f"check {what}: {apart:.1e} apart after a round that moved {moved:.1e}", flush=True)
    if not apart < min(1e-5, moved / 100):
        raise SystemExit(f"{what}: ours and theirs disagree")


def arrays(params: Any) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in jax.tree.leaves(params)]


class Setting(NamedTuple):
    """The clients of one size."""

    clients: int
    x: np.ndarray
    y: np.ndarray
    tasks: Tasks
    params: Any
    start: list[np.ndarray]


def setting(clients: int) -> Setting:
    x, y = pictures(clients)
    tasks = from_rows(x, y.astype(np.int32), np.arange(clients * EACH).reshape(clients, EACH))
    params = NET.init(jax.random.key(0))
    return Setting(clients, x, y, tasks, params, arrays(params))


def our_side(name: str, s: Setting) -> Any:
    """A call runs some rounds from where the last call ended, and gives the model."""
    algorithm = ours(name, s.clients)
    program = compiled(stretch(algorithm, s.tasks))
    state, done = jax.jit(algorithm.init)(s.params, HYPER), 0

    def call(rounds: int) -> Any:
        nonlocal state, done
        state, _ = program(state, jax.random.key(KEY), done, HYPER, rounds)
        done += rounds
        return jax.block_until_ready(state.meta)

    return call


def torch_side(name: str, s: Setting) -> Any:
    """A call runs the first round."""
    visits = of_round(drawn(ours(name, s.clients), s.tasks, 1), 0)
    batch, w = batches(torch.tensor(s.x), torch.tensor(s.y)), tensors(s.start)
    return lambda: a_round(name, w, batch, visits)


def seconds_of(call: Any, *given: Any) -> float:
    begin = time.perf_counter()
    call(*given)
    return time.perf_counter() - begin


def checked(name: str, s: Setting) -> tuple[Any, Any, list[np.ndarray]]:
    """Both sides, and the model after the first round, on which they agree."""
    moml, loop = our_side(name, s), torch_side(name, s)
    first, theirs = arrays(moml(1)), [p.detach().numpy() for p in loop()]
    agree(f"torch-loop {name} {s.clients} clients", first, theirs, s.start)
    return moml, loop, first


def in_turns(name: str, s: Setting, turns: int) -> tuple[float, float, list[np.ndarray]]:
    """Median seconds of a round of ours and of the loop's; the model after the first."""
    moml, loop, first = checked(name, s)
    rounds = max(2, 200 // s.clients)  # ours, in one call
    moml(rounds)
    pairs = [(seconds_of(moml, rounds) / rounds, seconds_of(loop)) for _ in range(turns)]
    mine, theirs = map(statistics.median, zip(*pairs, strict=True))
    return mine, theirs, first


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
        done = subprocess.run(command, capture_output=True, text=True, check=False)
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
    torch.set_num_threads(int(os.environ["NPROC"]))
    have = find_spec("flwr") is not None and find_spec("ray") is not None
    flower = have and not a.no_flower
    machine(torch=torch.__version__, **({"flwr": version("flwr")} if flower else {}))
    print(f"load average {os.getloadavg()[0]:.1f}, {KIND} pictures")
    if not have:
        print("Flower left out: pip install 'flwr[simulation]' measures it too")
    checked("per-fedavg first-order", setting(min(a.clients)))
    lines, ratios = [], []
    for clients in a.clients:
        s, firsts = setting(clients), {}
        seconds: dict[str, dict[str, float]] = {}
        for name in a.methods:
            turns = a.turns or TURNS.get(clients, 3)
            mine, theirs, firsts[name] = in_turns(name, s, turns)
            seconds[name] = {"moml": mine, "torch-loop": theirs}
        asked = [name for name in a.methods if name in FLOWERS]
        if flower and asked:
            outcome = by_flower(s, asked)
            for name in asked:
                model = [outcome[f"{name}/w{i}"] for i in range(len(s.start))]
                agree(f"flower {name} {clients} clients", firsts[name], model, s.start)
                seconds[name]["flower"] = statistics.median(outcome[f"{name}/seconds"][1:])
        for name, sides in seconds.items():
            each = "  ".join(f"{1 / t:9.2f} {side}" for side, t in sides.items())
            lines.append(f"{name:12}{clients:>5} clients  {each}")
            for side in list(sides)[1:]:
                over = sides[side] / sides["moml"]
                ratios.append(f"ratio {side}/moml {name} {clients} clients: {over:.1f}x")
    print("rounds a second", *lines, *ratios, sep="\n")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
