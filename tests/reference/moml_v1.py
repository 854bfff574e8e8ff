"""MOML v1 (Algorithm 1): an average per task, moved at its visits alone."""

from collections.abc import Callable

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Draw

Memory = dict[int, np.ndarray]


def eager(A: Adaptation, w: np.ndarray, draws: list[Draw]) -> Memory:
    """A memory of every task before the first step."""
    return {i: A.apply(w, s1) for i, s1, *_ in draws}


def moml_v1(
    A: Adaptation,
    w: np.ndarray,
    batches: list[list[Draw]],
    *,
    eta: float,
    beta: float,
    memory: Memory | None = None,
    outer: Callable = lambda delta: delta,
) -> tuple[list[np.ndarray], Memory]:
    """The meta-model after every step, and the memories after the last."""
    u, path = dict(memory or {}), []
    for batch in batches:  # line 3
        for i, s1, _, _ in batch:
            v = A.apply(w, s1)  # line 5
            u[i] = (1 - beta) * u[i] + beta * v if i in u else v  # line 6; first visit: u = v
        delta = np.mean([A.delta(w, u[i], s2, s3) for i, _, s2, s3 in batch], axis=0)  # line 8
        w = w - eta * outer(delta)  # line 9
        path.append(w)
    return path, u


def both_ways(
    A: Adaptation,
    w: np.ndarray,
    batches: list[list[Draw]],
    *,
    eta: float,
    beta: float,
    memory: Memory | None = None,
    outer: Callable = lambda delta: delta,
) -> tuple[list[np.ndarray], Memory]:
    """The same with each of S1 and S3 in both roles; the memory takes half of either."""
    u, path = dict(memory or {}), []
    for batch in batches:
        deltas = []
        for i, s1, _, s3 in batch:
            ends = []
            for support, query in ((s1, s3), (s3, s1)):
                v = A.apply(w, support)
                end = (1 - beta) * u[i] + beta * v if i in u else v
                ends.append(end)
                deltas.append(A.delta(w, end, support, query))
            u[i] = (ends[0] + ends[1]) / 2
        w = w - eta * outer(np.mean(deltas, axis=0))
        path.append(w)
    return path, u
