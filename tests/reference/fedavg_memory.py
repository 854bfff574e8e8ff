"""FedAvg for the common model; each client averages the models that its rounds end with."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average


def fedavg_memory(
    problem: Problem, w: np.ndarray, rounds: list[list[Client]], *, eta: float, beta: float
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, and the memories that clients keep."""
    memory: dict[int, np.ndarray] = {}
    path = []
    for clients in rounds:
        arrived = []
        for client in clients:
            w_i = w
            for draw in client.steps:
                w_i = w_i - eta * problem.grad(w_i, draw.support)
            if client.present:
                arrived.append((w_i, client.weight))
                u = memory.get(client.i, w_i)
                memory[client.i] = (1 - beta) * u + beta * w_i
        w = average(w, arrived)
        path.append(w)
    return path, memory
