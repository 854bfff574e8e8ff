"""FedProx: FedAvg with a proximal term in every local gradient."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average


def fedprox(
    problem: Problem, w: np.ndarray, rounds: list[list[Client]], *, eta: float, mu: float
) -> list[np.ndarray]:
    """The server's model after every round."""
    path = []
    for clients in rounds:
        arrived = []
        for client in clients:
            w_i = w
            for draw in client.steps:
                w_i = w_i - eta * (problem.grad(w_i, draw.support) + mu * (w_i - w))
            if client.present:
                arrived.append((w_i, client.weight))
        w = average(w, arrived)
        path.append(w)
    return path
