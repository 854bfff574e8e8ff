"""pFedMe: a proximal subproblem in every local step, the gradient anew at each of its steps."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average


def pfedme(
    problem: Problem,
    w: np.ndarray,
    rounds: list[list[Client]],
    *,
    eta: float,
    alpha: float,
    lam: float,
    R: int,
    beta_s: float = 1.0,
) -> list[np.ndarray]:
    """The server's model after every round."""
    path = []
    for clients in rounds:
        arrived = []
        for client in clients:
            w_i = w
            for draw in client.steps:
                theta = w_i
                for _ in range(R):
                    gradient = problem.grad(theta, draw.support) + lam * (theta - w_i)
                    theta = theta - alpha * gradient
                w_i = w_i - eta * lam * (w_i - theta)
            if client.present:
                arrived.append((w_i, client.weight))
        w = (1 - beta_s) * w + beta_s * average(w, arrived)
        path.append(w)
    return path
