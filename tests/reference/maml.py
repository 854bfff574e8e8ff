"""MAML: no memory."""

from collections.abc import Callable

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Draw


def maml(
    A: Adaptation,
    w: np.ndarray,
    batches: list[list[Draw]],
    *,
    eta: float,
    outer: Callable = lambda delta: delta,
) -> list[np.ndarray]:
    """The meta-model after every step."""
    path = []
    for batch in batches:
        deltas = []
        for _, s1, s2, s3 in batch:
            v = A.apply(w, s1)
            deltas.append(A.delta(w, v, s2, s3))
        w = w - eta * outer(np.mean(deltas, axis=0))
        path.append(w)
    return path
