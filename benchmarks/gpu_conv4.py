"""One MAML step of Conv4 in PyTorch over ours: Omniglot's shapes, 20-way 1-shot, 16 tasks, 5 steps.

Two PyTorch sides. `higher` is the library that most public MAML code is written with; the step is
that of its own example, task after task. `torch.func` is what a careful researcher writes today:
all tasks at once by vmap. Exact second order on all sides, Adam outside. Before any clock starts
the three meta-gradients must agree in double precision on the same weights and images.

For a GPU: `python benchmarks/gpu_conv4.py` (needs torch and higher). `--tasks 2 --filters 16` lets
a CPU try it. Single precision as each framework has it by default (TF32 products on both sides).
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy as torch_cross_entropy

from common import interleave, machine, ratio, table
from moml.methods import method
from moml.models import conv4, cross_entropy
from moml.runtime import simulate
from moml.tasks.episodes import episodes
from moml.tasks.sampler import draw, fetch
from moml.types import Hyper

WAYS, STEPS, ALPHA, ETA, CHUNK = 20, 5, 0.1, 1e-3, 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Standardise(nn.BatchNorm2d):
    """Batch statistics in plain operations: PyTorch's own differ in second order under vmap."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=(0, 2, 3), keepdim=True)
        x = centred * torch.rsqrt((centred**2).mean(dim=(0, 2, 3), keepdim=True) + self.eps)
        return x * self.weight[None, :, None, None] + self.bias[None, :, None, None]


class TorchConv4(nn.Module):
    """The same network, written as a PyTorch user writes it."""

    def __init__(self, filters: int, norm: type[nn.BatchNorm2d]):
        super().__init__()
        blocks: list[nn.Module] = []
        for channels in (1, filters, filters, filters):
            blocks += [
                nn.Conv2d(channels, filters, 3, stride=2, padding=1, bias=False),
                norm(filters, track_running_stats=False),
                nn.ReLU(),
            ]
        self.body, self.head = nn.Sequential(*blocks), nn.Linear(filters, WAYS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean(dim=(2, 3)))


def torch_net(params: Any, filters: int, side: Any) -> TorchConv4:
    """Our weights in it."""
    norm = nn.BatchNorm2d if side is by_higher else Standardise
    net = TorchConv4(filters, norm).to(torch.tensor(np.asarray(params.head.bias)).dtype)
    with torch.no_grad():
        for i, block in enumerate(params.body):
            weight = np.asarray(block.weight).reshape(3, 3, -1, filters).transpose(3, 2, 0, 1)
            net.body[3 * i].weight.copy_(torch.tensor(weight))
            net.body[3 * i + 1].weight.copy_(torch.tensor(np.asarray(block.scale)))
            net.body[3 * i + 1].bias.copy_(torch.tensor(np.asarray(block.offset)))
        net.head.weight.copy_(torch.tensor(np.asarray(params.head.weight)))
        net.head.bias.copy_(torch.tensor(np.asarray(params.head.bias)))
    return net.to(DEVICE)


def by_higher(net: nn.Module, sx: Any, sy: Any, qx: Any, qy: Any) -> None:
    """The meta-gradient into .grad, as in higher's own example."""
    import higher

    inner = torch.optim.SGD(net.parameters(), lr=ALPHA)
    for i in range(len(sx)):
        with higher.innerloop_ctx(net, inner, copy_initial_weights=False) as (mine, steps):
            for _ in range(STEPS):
                steps.step(torch_cross_entropy(mine(sx[i]), sy[i]))
            (torch_cross_entropy(mine(qx[i]), qy[i]) / len(sx)).backward()


def by_func(net: nn.Module, sx: Any, sy: Any, qx: Any, qy: Any) -> None:
    """The meta-gradient into .grad, all tasks at once."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        return torch_cross_entropy(functional_call(net, params, (x,)), y)

    def task(params: Any, sx: Any, sy: Any, qx: Any, qy: Any) -> Any:
        mine = params
        for _ in range(STEPS):
            g = grad(loss)(mine, sx, sy)
            mine = {name: mine[name] - ALPHA * g[name] for name in mine}
        return loss(mine, qx, qy)

    params = dict(net.named_parameters())
    mean = lambda p: vmap(task, in_dims=(None, 0, 0, 0, 0))(p, sx, sy, qx, qy).mean()
    for name, g in grad(mean)(params).items():
        params[name].grad = g.detach()


def to_torch(visit: Any) -> list[torch.Tensor]:
    """Support and query of a visit: images with their channels first, and labels."""
    parts = []
    for batch in (visit.task.support, visit.task.query):
        x = np.asarray(batch.x).transpose(0, 1, 4, 2, 3)
        parts += [torch.tensor(x, device=DEVICE), torch.tensor(np.asarray(batch.y)).long()]
    return [part.to(DEVICE) for part in parts]


def problem(tasks: int, filters: int) -> tuple[Any, Any, Any]:
    """Our network, method and episodes: random pictures of Omniglot's number and size."""
    pixels = np.random.default_rng(0).integers(0, 256, (1200, 20, 28, 28, 1), np.uint8)
    net, family = conv4(1, WAYS, filters=filters), episodes(pixels, WAYS)
    maml = method("maml", cross_entropy(net.predict), n=None, tasks_per_step=tasks,
                  inner_steps=STEPS, optimizer="adam")  # fmt: skip
    return net, maml, family


def check(tasks: int, filters: int) -> None:
    """The three meta-gradients in double precision, or an error."""
    with jax.enable_x64(True):
        net, _, family = problem(tasks, filters)
        params = net.init(jax.random.key(0))
        plain = method("maml", cross_entropy(net.predict), n=None, tasks_per_step=tasks,
                       inner_steps=STEPS).algorithm  # fmt: skip
        visit = fetch(draw(jax.random.key(1), plain.needs, family), family)
        hyper = jax.tree.map(jnp.asarray, Hyper(eta=1.0, alpha=ALPHA))
        state = plain.init(params, hyper)
        after, _ = jax.jit(plain.step)(state, visit, hyper)
        delta = jax.tree.map(lambda a, b: a - b, params, after.meta)  # eta = 1: the meta-gradient
        batch = to_torch(visit)
    for side in (by_higher, by_func):
        theirs = torch_net(params, filters, side)
        side(theirs, *batch)
        mine = torch_net(delta, filters, side)
        pairs = zip(mine.parameters(), theirs.parameters(), strict=True)
        apart = max((p.detach() - q.grad).abs().max().item() for p, q in pairs)
        size = max(p.detach().abs().max().item() for p in mine.parameters())
        print(f"check {side.__name__}: {apart:.1e} apart, of {size:.1e}", flush=True)
        if not apart < 1e-9 * max(size, 1):
            raise SystemExit(f"{side.__name__} and ours disagree")


def torch_side(side: Callable[..., None], tasks: int, filters: int, steps: int) -> Any:
    """A call trains PyTorch for a few steps on images that are on the device already."""
    net, maml, family = problem(tasks, filters)
    theirs = torch_net(net.init(jax.random.key(0)), filters, side)
    batch = to_torch(fetch(draw(jax.random.key(1), maml.algorithm.needs, family), family))
    outer = torch.optim.Adam(theirs.parameters(), lr=ETA)

    def call() -> None:
        for _ in range(steps):
            outer.zero_grad()
            side(theirs, *batch)
            outer.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return call


def our_side(tasks: int, filters: int) -> Any:
    """A call trains ours for a chunk, fresh episodes drawn and gathered at every step."""
    net, maml, family = problem(tasks, filters)
    program = simulate.program(maml.algorithm)
    hyper = jax.tree.map(jnp.float32, Hyper(eta=ETA, alpha=ALPHA))
    held = {"state": jax.jit(maml.algorithm.init)(net.init(jax.random.key(0)), hyper), "step": 0}

    def call() -> None:
        state, info = program(
            held["state"], family, jax.random.key(1), held["step"], hyper, CHUNK, CHUNK
        )
        held.update(state=state, step=held["step"] + CHUNK)
        jax.block_until_ready(info)

    return call


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--tasks", type=int, default=16)
    given.add_argument("--filters", type=int, default=64)
    given.add_argument("--torch-steps", type=int, default=5)
    a = given.parse_args()
    machine(torch=torch.__version__, torch_device=DEVICE)
    check(2, a.filters)
    sides = {
        "moml": our_side(a.tasks, a.filters),
        "higher": torch_side(by_higher, a.tasks, a.filters, a.torch_steps),
        "torch.func": torch_side(by_func, a.tasks, a.filters, a.torch_steps),
    }
    counts = {"moml": CHUNK, "higher": a.torch_steps, "torch.func": a.torch_steps}
    timings = interleave(sides, counts, turns=5)
    table(timings)
    for name in ("higher", "torch.func"):
        label = f"{name.replace('.', '_')}_over_moml_conv4"
        ratio(label, timings[name], timings["moml"])


if __name__ == "__main__":
    main()
