"""A round of FedAvg's CNN on PFLlib's split: moml against PyTorch's loop over clients, one device.

    python benchmarks/gpu_cnn.py                  CIFAR-100, dir; images from MOML_DATA, else random
    python benchmarks/gpu_cnn.py --split pat --seeds 1 3 --at-once 20 10

20 clients, an epoch each, batch 10, all in every round. The loop has its data on the device and
does the same batches in plain code. First both make a round in float64 on the CPU, with few
images a client, and must agree. `--few N` takes N images of each client, to try it elsewhere.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.functional import conv2d, cross_entropy, linear, max_pool2d, relu

from common import machine
from moml.data.images.sets import load
from moml.paper.leaderboard.data import DATASETS, Benchmark, of_images
from moml.paper.leaderboard.methods import composed
from moml.runtime import simulate
from moml.tasks.sampler import draw
from moml.types import Hyper

ETA, KEY, ROUNDS, CHECKED = 0.005, 1, 5, 60
DEVICE = "cuda" if torch.cuda.is_available() and jax.default_backend() == "gpu" else "cpu"


def images(dataset: str, few: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels in the publisher's order; random images where there are none."""
    classes = DATASETS[dataset]
    if os.environ.get("MOML_DATA"):
        parts = [load(dataset, part) for part in ("train", "test")]
        x, y = np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts])
    else:
        print("random images")
        y = np.repeat(np.arange(classes), 60_000 // classes)
        shape = (len(y), 28, 28, 1) if "mnist" in dataset else (len(y), 32, 32, 3)
        x = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    if few is not None:
        some = np.random.default_rng(0).permutation(len(y))[: 20 * few]
        x, y = x[some], y[some]
    return x, y


def our_side(bench: Benchmark, seeds: int, at_once: int | None = None, change: float = 0.0) -> Any:
    """A call runs some rounds of all seeds, from weights times 1 + change."""
    algorithm = composed("fedavg", bench.loss, at_once=at_once).algorithm
    program = simulate.program(algorithm, members=True)
    keys = jnp.stack([jax.random.key(KEY)] * seeds)
    hyper = Hyper(eta=jnp.full(seeds, ETA), alpha=jnp.full(seeds, ETA))
    params = jax.tree.map(lambda w: w * (1 + change), bench.net.init(jax.random.key(0)))
    first = jax.jit(jax.vmap(algorithm.init, (None, 0)))(params, hyper)
    held, done = [first], 0

    def call(rounds: int) -> Any:
        nonlocal done
        state = program(held.pop(), bench.train, keys, done, hyper, rounds, ROUNDS)[0]
        held.append(state)
        done += rounds
        return jax.block_until_ready(state.meta)

    return call


def weights(bench: Benchmark) -> list[np.ndarray]:
    """The first network as PyTorch has it: filters [out, in, 5, 5]."""
    params, found = bench.net.init(jax.random.key(0)), []
    for layer in params.body:
        kernel = np.asarray(layer.weight).reshape(5, 5, -1, layer.weight.shape[-1])
        found += [kernel.transpose(3, 2, 0, 1), np.asarray(layer.bias)]
    for layer in (params.hidden, params.head):
        found += [np.asarray(layer.weight), np.asarray(layer.bias)]
    return found


def logits(w: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for weight, bias in ((w[0], w[1]), (w[2], w[3])):
        x = max_pool2d(relu(conv2d(x, weight, bias)), 2)
    x = x.permute(0, 2, 3, 1).reshape(len(x), -1)  # channels last, as ours
    return linear(relu(linear(x, w[4], w[5])), w[6], w[7])


def torch_side(bench: Benchmark) -> Any:
    """A call runs the first round, client after client, and gives the mean."""
    needs = composed("fedavg", bench.loss).algorithm.needs
    visit = draw(jax.random.fold_in(jax.random.key(KEY), 0), needs, bench.train)
    owned = bench.train.data
    first = np.asarray(owned.start)[np.asarray(visit.ids)]
    rows = np.asarray(owned.order)[
        np.minimum(first[:, None, None] + np.asarray(visit.task.support), len(owned.order) - 1)
    ]
    steps = np.full(len(first), rows.shape[1])
    if visit.turnout is not None:
        steps = np.asarray(visit.turnout.steps)
    share = np.asarray(bench.train.index)[np.asarray(visit.ids)]
    share = share / share.sum()
    kind = torch.float64 if jax.config.jax_enable_x64 else torch.float32
    x = torch.tensor(np.asarray(owned.x), device=DEVICE).permute(0, 3, 1, 2).to(kind) / 255
    x, y = (x - 0.5) / 0.5, torch.tensor(np.asarray(owned.y), device=DEVICE).long()
    batches = [torch.tensor(mine[:h], device=DEVICE) for mine, h in zip(rows, steps, strict=True)]
    start = [torch.tensor(leaf, device=DEVICE) for leaf in weights(bench)]

    def call() -> list[torch.Tensor]:
        total = [torch.zeros_like(p) for p in start]
        for mine, part in zip(batches, share, strict=True):
            w = [p.clone().requires_grad_() for p in start]
            for batch in mine:
                loss = cross_entropy(logits(w, x[batch]), y[batch])
                grads = torch.autograd.grad(loss, w)
                with torch.no_grad():
                    for p, g in zip(w, grads, strict=True):
                        p.sub_(g, alpha=ETA)
            with torch.no_grad():
                for p, q in zip(total, w, strict=True):
                    p.add_(q, alpha=float(part))
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return total

    return call


def seconds_of(call: Any, *given: Any) -> float:
    begin = time.perf_counter()
    call(*given)
    return time.perf_counter() - begin


def apart(mine: np.ndarray, theirs: np.ndarray, start: np.ndarray) -> float:
    """The largest difference of two heads, as a share of the largest movement."""
    return float(np.abs(mine - theirs).max() / np.abs(mine - start).max())


def check(bench: Benchmark) -> None:
    """Both heads after a round in float64; and how far a change of 1e-7 of the first weights gets.

    float32 rounds by about that much in every step, so heads of float32 are at least so far apart.
    """
    start = weights(bench)[6]
    ours = np.asarray(our_side(bench, 1)(1).head.weight[0])
    far = apart(ours, torch_side(bench)()[6].cpu().numpy(), start)
    moved = apart(ours, np.asarray(our_side(bench, 1, change=1e-7)(1).head.weight[0]), start)
    print(f"check in float64: {far:.1e} of the movement apart", end="; ")
    print(f"after a change of 1e-7 {moved:.1e}", flush=True)
    if not far < 1e-6:
        raise SystemExit("ours and theirs disagree")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="cifar100", choices=DATASETS)
    parser.add_argument("--split", default="dir", choices=("dir", "pat"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--at-once", type=int, nargs="+", default=[20])
    parser.add_argument("--few", type=int)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--check",
        action="store_true",
        help="the check alone; set JAX_ENABLE_X64=1, JAX_PLATFORMS=cpu",
    )
    given = parser.parse_args()
    if not given.check:
        print(machine())
        own = [sys.executable, __file__, "--dataset", given.dataset, "--split", given.split]
        exact = os.environ | {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
        subprocess.run([*own, "--few", str(CHECKED), "--check"], env=exact, check=True)
    bench = of_images(*images(given.dataset, given.few), DATASETS[given.dataset], given.split)
    sizes = np.asarray(bench.train.index)
    print(f"{given.dataset} {given.split}: {sizes.min()} to {sizes.max()} training images a client")
    if given.check:
        return check(bench)
    torch.set_float32_matmul_precision("high")  # TF32, as JAX has it
    torch.backends.cudnn.allow_tf32 = True
    loop = torch_side(bench)
    theirs = statistics.median(seconds_of(loop) for _ in range(given.turns))
    print(f"torch-loop: {theirs:.3f} s a round")
    for at_once in given.at_once:
        for seeds in given.seeds:
            call = our_side(bench, seeds, None if at_once >= 20 else at_once)
            begin = time.perf_counter()
            call(ROUNDS)
            first = time.perf_counter() - begin
            ours = statistics.median(seconds_of(call, ROUNDS) for _ in range(given.turns))
            each = ours / ROUNDS / seeds
            name = f"{seeds} seeds at once, {at_once} clients side by side"
            print(f"{name}: {each:.4f} s a round and seed, first call {first:.1f} s")
            print(
                f"ratio torch-loop/moml cnn {given.split} {name}: {theirs / each:.1f}x", flush=True
            )


if __name__ == "__main__":
    main()
