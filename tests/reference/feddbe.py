"""FedDBE on squared loss: features tanh(B x), a linear head (W, b), and m at each client."""

import numpy as np

from tests.reference.problem import Client
from tests.reference.server import average


def _gradients(
    w: np.ndarray, m: np.ndarray, batch: tuple[np.ndarray, np.ndarray], z: np.ndarray, kappa: float
) -> tuple[np.ndarray, np.ndarray]:
    """Of mean (W (f + m) + b - y)^2 + kappa/2 mean_j (mean f_j - z_j)^2, in w and in m."""
    x, y = batch
    body, head, b = w[:6].reshape(2, 3), w[6:8], w[8]
    f = np.tanh(x @ body.T)
    error = 2 * ((f + m) @ head + b - y) / len(x)  # of the outputs
    g_f = np.outer(error, head) + kappa * (f.mean(axis=0) - z) / (f.shape[1] * len(x))
    g_body = (g_f * (1 - f**2)).T @ x
    g_head, g_m = error @ (f + m), np.sum(error) * head
    return np.concatenate([g_body.ravel(), g_head, [np.sum(error)]]), g_m


def feddbe(
    w: np.ndarray, rounds: list[list[Client]], *, eta: float, kappa: float, shift_rate: float
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, and the vectors m that clients keep."""
    own, path, z = {}, [], None
    for clients in rounds:
        arrived, means = [], []
        for client in clients:
            w_i, m = w, own.get(client.i, np.zeros(2))
            near = (np.zeros(2), 0.0) if z is None else (z, kappa)  # nothing to be near to yet
            for draw in client.steps:
                g_w, g_m = _gradients(w_i, m, draw.support, *near)
                w_i, m = w_i - eta * g_w, m - shift_rate * eta * g_m
            if client.present:
                arrived.append((w_i, client.weight))
                own[client.i] = m
                x = np.concatenate([draw.support[0] for draw in client.steps])
                f = np.tanh(x @ w_i[:6].reshape(2, 3).T).mean(axis=0)  # under its new model
                means.append((f, client.weight))
        if z is None and means:
            z = average(np.zeros(2), means)
        w = average(w, arrived)
        path.append(w)
    return path, own
