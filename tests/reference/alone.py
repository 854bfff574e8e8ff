"""Local training: every client for itself, and nothing travels."""

import numpy as np

from tests.reference.problem import Client, Problem


def alone(
    problem: Problem, w: np.ndarray, rounds: list[list[Client]], *, eta: float
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, which is the first one, and those of the clients."""
    own = {}
    for clients in rounds:
        for client in clients:
            u = own.get(client.i, w)
            for draw in client.steps:
                u = u - eta * problem.grad(u, draw.support)
            if client.present:
                own[client.i] = u
    return [w for _ in rounds], own
