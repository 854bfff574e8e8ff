"""SCAFFOLD (Karimireddy et al., 2020), Algorithm 1 with option II."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average


def scaffold(
    problem: Problem,
    x: np.ndarray,
    rounds: list[list[Client]],
    *,
    N: int,
    eta_l: float,
    eta_g: float,
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, and the control variates of the clients."""
    c, own, path = np.zeros_like(x), {}, []
    for clients in rounds:
        changes, variates = [], []
        for client in clients:  # line 5
            y, c_i = x, own.get(client.i, np.zeros_like(x))
            for draw in client.steps:  # lines 8 to 11
                y = y - eta_l * (problem.grad(y, draw.support) - c_i + c)
            new = c_i - c + (x - y) / (len(client.steps) * eta_l)  # line 12, option II
            if client.present:
                changes.append((y - x, client.weight))  # line 13
                variates.append((new - c_i, client.weight))
                own[client.i] = new  # line 14
        nothing = np.zeros_like(x)
        x = x + eta_g * average(nothing, changes)  # lines 16 and 17
        c = c + len(variates) / N * average(nothing, variates)
        path.append(x)
    return path, own
