"""An eager PyTorch loop of MOML v1 over ours, on sine: n = 25, B = 3, K = 1, net 1-40-40-1.

The PyTorch side is what a careful researcher writes: plain functions of a list of tensors, no
module in the inner loop, gradients by `torch.autograd.grad`, in-place updates of w and of the
memories. Before any clock starts, both sides train on the same draws in double precision and must
end at the same weights.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
import torch
from torch.nn.functional import linear, mse_loss, relu

from common import CHUNK, HYPER, NET, interleave, machine, ratio, sine_method, table, training
from moml.tasks.sampler import draw, fetch
from moml.tasks.sine import sine
from moml.types import Tasks

B = 3
STEPS = 300  # of PyTorch in one turn
Point = tuple[torch.Tensor, torch.Tensor]
Draws = Iterable[list[tuple[int, Point, Point]]]  # a step: (task, S1, S3) of B tasks


def loss(w: list[torch.Tensor], batch: Point) -> torch.Tensor:
    x, y = batch
    hidden = relu(linear(relu(linear(x, w[0], w[1])), w[2], w[3]))
    return mse_loss(linear(hidden, w[4], w[5]), y)


def moml_v1(w: list[torch.Tensor], memory: dict[int, Any], draws: Draws, exact: bool) -> None:
    """MOML v1, moving w and the memories in place."""
    grad = torch.autograd.grad
    for step in draws:
        deltas = []
        for i, support, query in step:
            g = grad(loss(w, support), w, create_graph=exact)
            v = [p - HYPER.alpha * q for p, q in zip(w, g, strict=True)]  # v = w - alpha g(w)
            with torch.no_grad():
                if i in memory:  # u <- (1 - beta) u + beta v
                    u = [p.lerp_(q, HYPER.beta) for p, q in zip(memory[i], v, strict=True)]
                else:  # first visit: u = v
                    u = memory[i] = [p.detach().clone().requires_grad_() for p in v]
            delta = grad(loss(u, query), u)
            deltas.append(grad(v, w, delta) if exact else delta)  # (I - alpha H) grad L(u)
        with torch.no_grad():
            for p, *ds in zip(w, *deltas, strict=True):
                p.sub_(sum(ds), alpha=HYPER.eta / len(ds))


def drawn(tasks: int, steps: int) -> Iterator[Any]:
    """The paper's 25 waves, K = 1; all numbers of a step in one call of each kind."""
    a, p = torch.meshgrid(torch.arange(1.0, 6), torch.arange(1.0, 6) * torch.pi / 5, indexing="ij")
    a, p = a.reshape(-1, 1, 1, 1), p.reshape(-1, 1, 1, 1)
    for _ in range(steps):
        ids = torch.randperm(tasks)[:B]
        x = 10 * torch.rand(B, 2, 1, 1) - 5
        y = a[ids] * torch.sin(p[ids] + x)
        points = [list(zip(xs, ys, strict=True)) for xs, ys in zip(x, y, strict=True)]
        yield [(i, s, q) for i, (s, q) in zip(ids.tolist(), points, strict=True)]


def as_torch(params: Any) -> list[torch.Tensor]:
    return [torch.tensor(np.array(leaf)).requires_grad_() for leaf in jax.tree.leaves(params)]


def check(curvature: str, steps: int = 20) -> None:
    """The same start and the same draws, in double precision: the same weights, or an error."""
    with jax.enable_x64(True):
        tasks: Tasks = sine()
        algorithm = sine_method("moml-v1", tasks, curvature=curvature)
        state = algorithm.init(NET.init(jax.random.key(0)), HYPER)
        start = as_torch(state.meta)
        w, draws = as_torch(state.meta), []
        step = jax.jit(algorithm.step)
        for t in range(steps):
            key = jax.random.fold_in(jax.random.key(1), t)
            visit = fetch(draw(key, algorithm.needs, tasks), tasks)
            state, _ = step(state, visit, HYPER)
            x, y = ([*map(torch.tensor, map(np.array, s[:2]))] for s in visit.task[:2])
            pairs = zip(visit.ids.tolist(), zip(*x, strict=True), zip(*y, strict=True), strict=True)
            draws.append(list(pairs))
        moml_v1(w, {}, draws, curvature == "exact")
        ours = as_torch(state.meta)
    far = lambda a: max((p - q).detach().abs().max().item() for p, q in zip(a, ours, strict=True))
    print(f"check {curvature}: {far(w):.1e} apart after {steps} steps that moved {far(start):.1e}")
    if not far(w) < 1e-10 < 1e-4 < far(start):
        raise SystemExit(f"PyTorch and ours disagree, {curvature}: {far(w)}")


def torch_training(curvature: str, threads: int) -> Callable[[], None]:
    w, memory = as_torch(NET.init(jax.random.key(0))), {}

    def call() -> None:
        torch.set_num_threads(threads)
        moml_v1(w, memory, drawn(25, STEPS), curvature == "exact")

    return call


def main() -> None:
    machine(torch=torch.__version__)
    tasks, threads = sine(), sorted({1, torch.get_num_threads()})
    timings, ratios = {}, {}
    for curvature in ("first-order", "exact"):
        check(curvature)
        ours = f"moml, {curvature}"
        theirs = {f"torch, {t} threads, {curvature}": torch_training(curvature, t) for t in threads}
        sides = {ours: training(sine_method("moml-v1", tasks, curvature=curvature), tasks)} | theirs
        timings |= interleave(sides, {ours: CHUNK} | dict.fromkeys(theirs, STEPS), turns=10)
        best = min((timings[name] for name in theirs), key=lambda t: t.best)
        ratios[f"torch_over_moml_{curvature.replace('-', '_')}"] = best, timings[ours]
    table(timings)
    for name, (over, under) in ratios.items():
        ratio(name, over, under)


if __name__ == "__main__":
    main()
