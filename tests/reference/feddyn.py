"""FedDyn (Acar et al., 2021), Algorithm 1, with gradient steps on the clients' problems."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average


def feddyn(
    problem: Problem,
    theta: np.ndarray,
    rounds: list[list[Client]],
    *,
    m: int,
    eta: float,
    alpha: float,
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, and the linear terms of the clients."""
    h, terms, path = np.zeros_like(theta), {}, []
    for clients in rounds:
        arrived = []
        for client in clients:
            theta_k, g_k = theta, terms.get(client.i, np.zeros_like(theta))
            for draw in client.steps:  # of L_k - <g_k, theta_k> + alpha/2 |theta_k - theta|^2
                grad = problem.grad(theta_k, draw.support) - g_k + alpha * (theta_k - theta)
                theta_k = theta_k - eta * grad
            if client.present:
                terms[client.i] = g_k - alpha * (theta_k - theta)
                arrived.append((theta_k, client.weight))
        if arrived:
            # By samples (`weighted`) the sum over clients is their number times the mean.
            moved = len(arrived) * (average(theta, arrived) - theta)
            h = h - alpha / m * moved
            theta = average(theta, arrived) - h / alpha
        path.append(theta)
    return path, terms
