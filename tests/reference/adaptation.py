"""Adaptations by gradient steps, their Jacobians written out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.reference.problem import Problem


class Adaptation(NamedTuple):
    """A(w; S), and the meta-gradient that goes with it."""

    start: Callable[[np.ndarray], np.ndarray]  # w, seen as a personal model
    apply: Callable[[np.ndarray, Any], np.ndarray]  # v = A(w; S1)
    delta: Callable[[np.ndarray, np.ndarray, Any, Any], np.ndarray]  # J_A(w; S2)' grad L_S3(u)


def exact(problem: Problem, w: np.ndarray, batch: Any, c: np.ndarray) -> np.ndarray:
    """H c, with the Hessian itself."""
    return problem.hess(w, batch) @ c


def first_order(problem: Problem, w: np.ndarray, batch: Any, c: np.ndarray) -> np.ndarray:
    """No curvature at all."""
    return np.zeros_like(c)


def finite_difference(problem: Problem, w: np.ndarray, batch: Any, c: np.ndarray) -> np.ndarray:
    """H c from two gradients, 1e-3 ahead and behind along c."""
    size, delta = np.linalg.norm(c), 1e-3
    if size == 0:
        return np.zeros_like(c)
    step = delta * c / size
    ahead, behind = problem.grad(w + step, batch), problem.grad(w - step, batch)
    return size * (ahead - behind) / (2 * delta)


def _path(problem: Problem, w: np.ndarray, rates: list[np.ndarray], batch: Any) -> list:
    """w, and the point after each of the steps p <- p - rate grad L(p)."""
    points = [w]
    for rate in rates:
        points.append(points[-1] - rate * problem.grad(points[-1], batch))
    return points


def gradient_steps(
    problem: Problem,
    alpha: float,
    steps: int = 1,
    *,
    adapts: np.ndarray | bool = True,
    times_hessian: Callable = exact,
    tie: np.ndarray | None = None,
) -> Adaptation:
    """k steps of size alpha on the coordinates that adapt: J = prod_j (I - alpha P H(p_j)).

    The first point is T w: `tie` T puts the mean of some coordinates in the place of each.
    """
    rate = np.where(adapts, alpha, 0.0)
    T = np.eye(5) if tie is None else tie

    def apply(w: np.ndarray, s1: Any) -> np.ndarray:
        return _path(problem, T @ w, [rate] * steps, s1)[-1]

    def delta(w: np.ndarray, u: np.ndarray, s2: Any, s3: Any) -> np.ndarray:
        c = problem.grad(np.where(adapts, u, T @ w), s3)  # at u', at w where nothing adapts
        for p in reversed(_path(problem, T @ w, [rate] * steps, s2)[:-1]):
            c = c - times_hessian(problem, p, s2, rate * c)  # (I - H P alpha) c
        return T.T @ c

    return Adaptation(lambda w: T @ w, apply, delta)


def learned_steps(
    problem: Problem,
    steps: int = 1,
    *,
    adapts: np.ndarray,
    times_hessian: Callable = exact,
) -> Adaptation:
    """Meta-SGD: the meta-model is w followed by the log step sizes of what adapts."""
    d = len(adapts)

    def split(meta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rate = np.zeros(d)
        rate[adapts] = np.exp(meta[d:])
        return meta[:d], rate

    def apply(meta: np.ndarray, s1: Any) -> np.ndarray:
        w, rate = split(meta)
        return _path(problem, w, [rate] * steps, s1)[-1]

    def delta(meta: np.ndarray, u: np.ndarray, s2: Any, s3: Any) -> np.ndarray:
        w, rate = split(meta)
        c = problem.grad(np.where(adapts, u, w), s3)
        log_rate = np.zeros(d)
        for p in reversed(_path(problem, w, [rate] * steps, s2)[:-1]):
            log_rate -= rate * problem.grad(p, s2) * c  # d/d log a of p - a g(p)
            c = c - times_hessian(problem, p, s2, rate * c)
        return np.concatenate([c, log_rate[adapts]])

    return Adaptation(lambda meta: meta[:d], apply, delta)


def layer_steps(problem: Problem, steps: int, leaf: np.ndarray) -> Adaptation:
    """MAML++: the meta-model is w followed by the log step sizes of each leaf, step by step.

    `leaf` is the number of each coordinate's leaf.
    """
    d, leaves = len(leaf), int(leaf.max()) + 1

    def split(meta: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        logs = meta[d:].reshape(leaves, steps)
        return meta[:d], [np.exp(logs[leaf, t]) for t in range(steps)]

    def apply(meta: np.ndarray, s1: Any) -> np.ndarray:
        return _path(problem, *split(meta), s1)[-1]

    def delta(meta: np.ndarray, u: np.ndarray, s2: Any, s3: Any) -> np.ndarray:
        w, rates = split(meta)
        c = problem.grad(u, s3)
        logs = np.zeros((leaves, steps))
        points = _path(problem, w, rates, s2)
        for t in reversed(range(steps)):
            g = problem.grad(points[t], s2)
            for i in range(d):
                logs[leaf[i], t] -= rates[t][i] * g[i] * c[i]
            c = c - exact(problem, points[t], s2, rates[t] * c)
        return np.concatenate([c, logs.ravel()])

    return Adaptation(lambda meta: meta[:d], apply, delta)
