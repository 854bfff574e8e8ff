"""Rounds as released research code computes them: PyTorch, client after client. No JAX in here.

Plain functions of a list of tensors and `torch.autograd.grad`, without a module or an optimiser in
the inner loop: somewhat faster than what is usually written. A client's samples are a dictionary of
row numbers of one array of images, `support`, `query` [H, K] and `restart` [K0].
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy, linear, relu

ETA, ALPHA, BETA = 0.01, 0.01, 0.3
Weights = list[torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]
grad = torch.autograd.grad


def loss(w: Weights, batch: Batch) -> torch.Tensor:
    hidden = relu(linear(relu(linear(batch[0], w[0], w[1])), w[2], w[3]))
    return cross_entropy(linear(hidden, w[4], w[5]), batch[1])


def adapted(w: Weights, batch: Batch, **how: bool) -> Weights:
    """v = w - alpha grad L(w)."""
    return [p - ALPHA * g for p, g in zip(w, grad(loss(w, batch), w, **how), strict=True)]


def descend(w: Weights, delta: Any) -> None:
    with torch.no_grad():
        for p, d in zip(w, delta, strict=True):
            p.sub_(d, alpha=ETA)


def fedavg(w: Weights, batch: Callable[[Any], Batch], task: dict[str, Any]) -> None:
    """A client's H steps, moving w in place."""
    for rows in task["support"]:
        descend(w, grad(loss(w, batch(rows)), w))


def per_fedavg(w: Weights, batch: Callable[[Any], Batch], task: dict[str, Any]) -> None:
    """The same with MAML's exact gradient."""
    for support, query in zip(task["support"], task["query"], strict=True):
        v = adapted(w, batch(support), create_graph=True)
        descend(w, grad(loss(v, batch(query)), w))


def per_fedavg_first_order(w: Weights, batch: Callable[[Any], Batch], task: dict[str, Any]) -> None:
    """The same with J_A = I."""
    for support, query in zip(task["support"], task["query"], strict=True):
        v = [p.detach().requires_grad_() for p in adapted(w, batch(support))]
        descend(w, grad(loss(v, batch(query)), v))


def localmoml(w: Weights, batch: Callable[[Any], Batch], task: dict[str, Any]) -> None:
    """The same with a memory that begins at A(w; S0)."""
    u = [p.detach().requires_grad_() for p in adapted(w, batch(task["restart"]))]
    for support, query in zip(task["support"], task["query"], strict=True):
        v = adapted(w, batch(support), create_graph=True)
        with torch.no_grad():
            for p, q in zip(u, v, strict=True):
                p.lerp_(q, BETA)  # u <- (1 - beta) u + beta v
        descend(w, grad(v, w, grad(loss(u, batch(query)), u)))


CLIENTS = {
    "fedavg": fedavg,
    "per-fedavg": per_fedavg,
    "per-fedavg first-order": per_fedavg_first_order,
    "localmoml": localmoml,
}


def batches(x: torch.Tensor, y: torch.Tensor) -> Callable[[Any], Batch]:
    """Row numbers -> samples, pixels 0 .. 1; x are bytes [rows, inputs]."""
    return lambda rows: (x[rows].float() / 255, y[rows])


def tensors(arrays: Any, device: str = "cpu") -> Weights:
    return [torch.tensor(array, device=device).requires_grad_() for array in arrays]


def a_round(name: str, w: Weights, batch: Callable[[Any], Batch], visits: list[Any]) -> Weights:
    """Every client trains a copy of w; their mean."""
    total = [torch.zeros_like(p) for p in w]
    for task in visits:
        mine = [p.detach().clone().requires_grad_() for p in w]
        CLIENTS[name](mine, batch, task)
        with torch.no_grad():
            for p, q in zip(total, mine, strict=True):
                p.add_(q, alpha=1 / len(visits))
    return [p.requires_grad_() for p in total]
