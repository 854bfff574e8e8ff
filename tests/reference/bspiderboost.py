"""BSpiderBoost: a large task batch every q iterations, differences in between."""

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Draw


def bspiderboost(
    A: Adaptation, w: np.ndarray, batches: list[list[Draw]], *, eta: float, q: int
) -> list[np.ndarray]:
    """The meta-model after every iteration; every q-th batch is a large one."""

    def estimate(w: np.ndarray, batch: list[Draw]) -> np.ndarray:
        return np.mean([A.delta(w, A.apply(w, s1), s2, s3) for _, s1, s2, s3 in batch], axis=0)

    z, before, path = np.zeros_like(w), w, []
    for t, batch in enumerate(batches):
        correction = 0 if t % q == 0 else z - estimate(before, batch)
        z = estimate(w, batch) + correction
        before, w = w, w - eta * z
        path.append(w)
    return path
