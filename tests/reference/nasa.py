"""NASA: SCGD with an averaged gradient."""

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Draw


def nasa(
    A: Adaptation,
    w: np.ndarray,
    batches: list[list[Draw]],
    *,
    eta: float,
    beta: float,
    gamma: float,
    memory: dict[int, np.ndarray] | None = None,
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The meta-model after every step, and the memories after the last."""
    u, z, path = dict(memory or {}), None, []
    for everyone in batches:
        delta = np.zeros_like(w)
        for i, s1, s2, s3 in everyone:
            v = A.apply(w, s1)
            u[i] = (1 - beta) * u[i] + beta * v if i in u else v
            delta = delta + A.delta(w, u[i], s2, s3) / len(everyone)
        z = delta if z is None else (1 - gamma) * z + gamma * delta
        w = w - eta * z
        path.append(w)
    return path, u
