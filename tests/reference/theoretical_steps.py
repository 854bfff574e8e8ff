"""The step sizes of MOML v2's theorem."""

from collections.abc import Callable

import numpy as np

from tests.reference.problem import Draw, Problem


def theoretical_steps(
    problem: Problem, extra: list[list[Draw]], *, eta0: float, alpha: float, L: float, rho: float
) -> Callable[[int, np.ndarray], tuple[float, float]]:
    """(eta_t, beta_t) from the samples that step t drew for them alone."""
    etas = []

    def sizes(t: int, w: np.ndarray) -> tuple[float, float]:
        norms = [np.linalg.norm(problem.grad(w, s)) for _, s, _, _ in extra[t]]
        lhat = 4 * L + 2 * rho * alpha / len(norms) * sum(norms)
        etas.append(eta0 / lhat)
        return etas[t], 6 * L**2 * eta0 ** (-1 / 3) * etas[max(t - 1, 0)]

    return sizes
