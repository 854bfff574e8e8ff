"""MOML v2 (Algorithm 2), as printed: every step moves all n memories."""

from collections.abc import Callable

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Draw


def moml_v2(
    A: Adaptation,
    w: np.ndarray,
    batches: list[tuple[list[Draw], list[Draw]]],
    *,
    n: int,
    sizes: Callable[[int, np.ndarray], tuple[float, float]],
    memory: dict[int, np.ndarray] | None = None,
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """Each step has its memory batch B' and its meta batch B; `sizes(t, w)` is (eta_t, beta_t)."""
    u = dict(memory) if memory else {i: A.start(w) for i in range(n)}
    path = []
    for t, (memory_batch, meta_batch) in enumerate(batches):  # line 3
        eta, beta = sizes(t, w)
        p = len(memory_batch) / n
        v = {i: A.apply(w, s1) for i, s1, _, _ in memory_batch}  # line 5
        for i in range(n):  # line 7
            u[i] = (1 - beta) * u[i] + beta * A.start(w)
            if i in v:
                u[i] = u[i] + beta / p * (v[i] - A.start(w))
        delta = np.mean([A.delta(w, u[i], s2, s3) for i, _, s2, s3 in meta_batch], axis=0)  # line 8
        w = w - eta * delta  # line 9
        path.append(w)
    return path, u
