"""FedAvgM (Hsu et al., 2019), FedAdam and FedYogi (Reddi et al., 2021, Algorithm 2)."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average


def change(
    problem: Problem, x: np.ndarray, clients: list[Client], eta_l: float
) -> np.ndarray | None:
    """Delta, the mean of what clients change; None where nobody answers."""
    arrived = []
    for client in clients:
        x_i = x
        for draw in client.steps:
            x_i = x_i - eta_l * problem.grad(x_i, draw.support)
        if client.present:
            arrived.append((x_i - x, client.weight))
    return average(x, arrived) if arrived else None


def fedavgm(
    problem: Problem,
    w: np.ndarray,
    rounds: list[list[Client]],
    *,
    eta_l: float,
    eta: float,
    beta: float,
) -> list[np.ndarray]:
    """The server's model after every round."""
    v, path = np.zeros_like(w), []
    for clients in rounds:
        delta = change(problem, w, clients, eta_l)
        if delta is not None:
            v = beta * v + delta
            w = w + eta * v
        path.append(w)
    return path


def adaptive(
    problem: Problem,
    x: np.ndarray,
    rounds: list[list[Client]],
    *,
    rule: str,
    eta_l: float,
    eta: float,
    beta1: float,
    beta2: float,
    tau: float,
) -> list[np.ndarray]:
    """The server's model after every round."""
    m, v, path = np.zeros_like(x), np.full_like(x, tau**2), []
    for clients in rounds:
        delta = change(problem, x, clients, eta_l)  # lines 5 to 10
        if delta is not None:
            m = beta1 * m + (1 - beta1) * delta  # line 11
            if rule == "yogi":
                v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
            else:
                v = beta2 * v + (1 - beta2) * delta**2
            x = x + eta * m / (np.sqrt(v) + tau)  # line 15
        path.append(x)
    return path
