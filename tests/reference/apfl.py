"""APFL, Algorithm 1 with an adaptive weight: a client's model is a v + (1 - a) w_i."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average


def apfl(
    problem: Problem,
    w: np.ndarray,
    rounds: list[list[Client]],
    *,
    eta: float,
    mix: float,
    adaptive: bool,
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, and v with a behind it that clients keep."""
    own, path = {}, []
    for clients in rounds:
        arrived = []
        for client in clients:
            w_i = w
            v, a = own.get(client.i, (w, mix))
            for draw in client.steps:
                v_bar = a * v + (1 - a) * w_i
                g_w, g_bar = problem.grad(w_i, draw.support), problem.grad(v_bar, draw.support)
                slope = np.sum((v - w_i) * g_bar)
                w_i = w_i - eta * g_w
                v = v - eta * a * g_bar
                if adaptive:
                    a = min(max(a - eta * slope, 0.0), 1.0)
            if client.present:
                arrived.append((w_i, client.weight))
                own[client.i] = v, a
        w = average(w, arrived)
        path.append(w)
    return path, {i: np.append(v, a) for i, (v, a) in own.items()}
