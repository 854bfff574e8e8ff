"""SCGD: an average per task, all tasks at every iteration, a plain step."""

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Draw


def scgd(
    A: Adaptation,
    w: np.ndarray,
    batches: list[list[Draw]],
    *,
    eta: float,
    beta: float,
    memory: dict[int, np.ndarray] | None = None,
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The meta-model after every step, and the memories after the last."""
    u, path = dict(memory or {}), []
    for everyone in batches:
        delta = np.zeros_like(w)
        for i, s1, s2, s3 in everyone:
            v = A.apply(w, s1)
            u[i] = (1 - beta) * u[i] + beta * v if i in u else v
            delta = delta + A.delta(w, u[i], s2, s3) / len(everyone)
        w = w - eta * delta
        path.append(w)
    return path, u
