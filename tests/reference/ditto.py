"""Ditto: FedAvg for the common model, and beside it a model of each client's own."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average


def ditto(
    problem: Problem,
    w: np.ndarray,
    rounds: list[list[Client]],
    *,
    eta: float,
    alpha: float,
    lam: float,
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, and the models that clients keep."""
    own, path = {}, []
    for clients in rounds:
        arrived = []
        for client in clients:
            w_i, u = w, own.get(client.i, w)
            for draw in client.steps:
                w_i = w_i - eta * problem.grad(w_i, draw.support)
                u = u - alpha * (problem.grad(u, draw.support) + lam * (u - w))
            if client.present:
                arrived.append((w_i, client.weight))
                own[client.i] = u
        w = average(w, arrived)
        path.append(w)
    return path, own
