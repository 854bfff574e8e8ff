"""What the benchmarks of federated rounds share: clients with pictures, their draws, two sides."""

import os
import time
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

import common  # noqa: F401  sets the threads before JAX starts
from moml.data.images.sets import load
from moml.errors import DataError
from moml.methods import method
from moml.models import cross_entropy, mlp
from moml.runtime import simulate
from moml.tasks.clients import from_rows
from moml.tasks.sampler import draw
from moml.types import Algorithm, Hyper, Tasks
from torch_clients import ALPHA, BETA, ETA, a_round, batches, tensors

INPUTS = int(os.environ.get("INPUTS", "3072"))  # of every picture, its first values
NET = mlp(INPUTS, 40, 40, 10)
LOSS = cross_entropy(NET.predict)
HYPER = jax.tree.map(jnp.float32, Hyper(eta=ETA, beta=BETA, alpha=ALPHA))
EACH, K, H, KEY = 20, 5, 10, 1  # images of a client; samples; local steps
POOL = 50_000  # pictures at most; more clients than that feeds share them
torch.set_num_threads(int(os.environ["NPROC"]))


@cache
def pictures(rows: int = POOL) -> tuple[str, np.ndarray, np.ndarray]:
    """Their kind; bytes [rows, inputs]; labels."""
    if os.environ.get("MOML_DATA"):
        try:
            images = load("cifar10", "train")
            flat = np.ascontiguousarray(images.x[:rows].reshape(rows, 3072)[:, :INPUTS])
            return "CIFAR-10's pictures", flat, images.y[:rows].astype(np.int64)
        except DataError as error:
            print(f"random pictures: {error}")
    random = np.random.default_rng(0)
    bytes_, labels = random.integers(0, 256, (rows, INPUTS), np.uint8), random.integers(0, 10, rows)
    return "random pictures", bytes_, labels


def ours(name: str, clients: int, sampled: int | None = None, **options: Any) -> Algorithm:
    """A method by its name; all clients in every round, or `sampled` of them."""
    name, *kind = name.split()
    kinds = {"": {}, "first-order": {"curvature": "first-order"}, "carried": {"carried": True}}
    shape = {"n": clients, "tasks_per_step": sampled or clients, "k": K, "local_steps": H}
    return method(name, LOSS, **shape, **kinds["".join(kind)], **options).algorithm


def drawn(algorithm: Algorithm, tasks: Tasks, rounds: int) -> dict[str, np.ndarray]:
    """What each client draws in the first rounds, as rows of all pictures: [rounds, clients, ...].

    All clients take part, so they stand in order.
    """
    key = lambda t: jax.random.fold_in(jax.random.key(KEY), t)
    one = lambda t: draw(key(t), algorithm.needs, tasks).task
    task = jax.jit(jax.vmap(one))(jnp.arange(rounds))._asdict()
    rows = {part: np.asarray(own) for part, own in task.items() if own is not None}
    first = lambda own: EACH * np.arange(own.shape[1]).reshape(1, -1, *(1,) * (own.ndim - 2))
    return {part: (own + first(own)) % POOL for part, own in rows.items()}


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
    """So many clients, each with rows that follow the last one's, and a model to start from."""

    clients: int
    x: np.ndarray
    y: np.ndarray
    tasks: Tasks
    start: list[np.ndarray]


def setting(clients: int) -> Setting:
    _, x, y = pictures(min(clients * EACH, POOL))
    rows = np.arange(clients * EACH).reshape(clients, EACH) % POOL
    tasks = from_rows(x, y.astype(np.int32), rows)
    return Setting(clients, x, y, tasks, arrays(NET.init(jax.random.key(0))))


def our_side(name: str, s: Setting, **options: Any) -> Any:
    """A call runs some rounds from where the last call ended, and gives the model."""
    algorithm = ours(name, s.clients, **options)
    program = simulate.program(algorithm)
    state, done = jax.jit(algorithm.init)(NET.init(jax.random.key(0)), HYPER), 0

    def call(rounds: int) -> Any:
        nonlocal state, done
        state, _ = program(state, s.tasks, jax.random.key(KEY), done, HYPER, rounds, rounds)
        done += rounds
        return jax.block_until_ready(state.meta)

    return call


def torch_side(name: str, s: Setting, device: str = "cpu") -> Any:
    """A call runs the first round, and gives the model."""
    on = lambda array: torch.tensor(array, device=device)
    rows = drawn(ours(name, s.clients), s.tasks, 1)
    visits = [{part: on(own[0, i]) for part, own in rows.items()} for i in range(s.clients)]
    batch, w = batches(on(s.x), on(s.y)), tensors(s.start, device)

    def call() -> Any:
        mean = a_round(name, w, batch, visits)
        if device == "cuda":
            torch.cuda.synchronize()
        return mean

    return call


def seconds_of(call: Any, *given: Any) -> float:
    begin = time.perf_counter()
    call(*given)
    return time.perf_counter() - begin


def checked(name: str, s: Setting, device: str = "cpu") -> tuple[Any, Any, list[np.ndarray]]:
    """Both sides, and the model after the first round, on which they agree."""
    moml, loop = our_side(name, s), torch_side(name, s, device)
    first, theirs = arrays(moml(1)), [p.detach().cpu().numpy() for p in loop()]
    agree(f"torch-loop {name} {s.clients} clients", first, theirs, s.start)
    return moml, loop, first
