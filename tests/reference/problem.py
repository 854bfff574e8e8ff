"""A small non-convex problem, its derivatives written out: squared loss on a sigmoid."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Samples = tuple[np.ndarray, np.ndarray]  # x [K, 4], y [K]


class Problem(NamedTuple):
    """A loss over a flat vector w and a batch of samples, with its first two derivatives."""

    value: Callable[[np.ndarray, Any], Any]
    grad: Callable[[np.ndarray, Any], np.ndarray]
    hess: Callable[[np.ndarray, Any], np.ndarray]


class Draw(NamedTuple):
    """What one visit of task i drew: S1, S2 and S3."""

    i: int
    support: Any
    hessian: Any
    query: Any


class Client(NamedTuple):
    """What client i drew for one round: S0, and a draw for each local step that it does."""

    i: int
    restart: Any
    steps: list[Draw]
    present: bool = True  # whether its answer arrives
    weight: float = 1.0  # in the server's mean


def _forward(w: np.ndarray, batch: Samples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = batch
    f = np.concatenate([x, np.ones((len(x), 1))], axis=1)  # a column of ones: x.w + b
    s = 1 / (1 + np.exp(-f @ w))
    return f, s, s - y


def value(w: np.ndarray, batch: Samples) -> float:
    """mean (s - y)^2, s = sigmoid(x.w + b)."""
    _, _, error = _forward(w, batch)
    return np.mean(error**2)


def grad(w: np.ndarray, batch: Samples) -> np.ndarray:
    """mean 2 (s - y) s' f, with s' = s (1 - s)."""
    f, s, error = _forward(w, batch)
    return (2 * error * s * (1 - s)) @ f / len(f)


def hess(w: np.ndarray, batch: Samples) -> np.ndarray:
    """mean 2 (s'^2 + (s - y) s'') f f', with s'' = s' (1 - 2 s)."""
    f, s, error = _forward(w, batch)
    d1 = s * (1 - s)
    d2 = d1 * (1 - 2 * s)
    return f.T @ np.diag(2 * (d1**2 + error * d2)) @ f / len(f)


SIGMOID = Problem(value, grad, hess)
