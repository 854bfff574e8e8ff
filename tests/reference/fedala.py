"""FedALA, Algorithm 1: each client mixes the server's model and its last one, then trains."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average


def fedala(
    problem: Problem,
    w: np.ndarray,
    rounds: list[list[Client]],
    *,
    eta: float,
    mix_eta: float,
    mix_steps: int,
    upper: np.ndarray,
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, and last models with W behind them."""
    own, path = {}, []
    for clients in rounds:
        arrived = []
        for client in clients:
            w_i, W = own.get(client.i, (w, np.ones(upper.sum())))
            start = w.copy()
            start[upper] = w_i[upper] + (w[upper] - w_i[upper]) * W
            x, y = client.restart
            for batch in zip(np.split(x, mix_steps), np.split(y, mix_steps), strict=True):
                g = problem.grad(start, batch)[upper] * (w[upper] - w_i[upper])
                W = np.clip(W - mix_eta * g, 0, 1)
                start[upper] = w_i[upper] + (w[upper] - w_i[upper]) * W
            w_i = start
            for draw in client.steps:
                w_i = w_i - eta * problem.grad(w_i, draw.support)
            if client.present:
                arrived.append((w_i, client.weight))
                own[client.i] = w_i, W
        w = average(w, arrived)
        path.append(w)
    return path, {i: np.concatenate(kept) for i, kept in own.items()}
