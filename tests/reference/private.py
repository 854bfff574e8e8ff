"""Rounds in which some parameters never leave their client."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Client
from tests.reference.server import average

Update = Callable[[np.ndarray, Client, Any], tuple[np.ndarray, Any]]  # w, client, what it kept


def private(
    update: Update, w: np.ndarray, rounds: list[list[Client]], own: np.ndarray
) -> tuple[list[np.ndarray], dict[int, np.ndarray], dict[int, Any]]:
    """The server's model after every round, the clients' models, and what else they keep.

    `own` marks the coordinates that stay at their client; the server's stay as they are.
    """
    models, kept, path = {}, {}, []
    for clients in rounds:
        arrived = []
        for client in clients:
            start = np.where(own, models.get(client.i, w), w)
            w_i, new = update(start, client, kept.get(client.i))
            if client.present:
                models[client.i], kept[client.i] = w_i, new
                arrived.append((np.where(own, w, w_i), client.weight))
        w = average(w, arrived)
        path.append(w)
    return path, models, kept


def perfedavg(A: Adaptation, eta: float) -> Update:
    """A client's round of Per-FedAvg."""

    def update(w: np.ndarray, client: Client, kept: None) -> tuple[np.ndarray, None]:
        for _, s1, s2, s3 in client.steps:
            w = w - eta * A.delta(w, A.apply(w, s1), s2, s3)
        return w, None

    return update


def localmoml(A: Adaptation, eta: float, beta: float) -> Update:
    """A client's round of LocalMOML; the memory is restarted where the round has samples for it."""

    def update(w: np.ndarray, client: Client, u: Any) -> tuple[np.ndarray, Any]:
        u = u if client.restart is None else A.apply(w, client.restart)
        for _, s1, s2, s3 in client.steps:
            v = A.apply(w, s1)
            u = v if u is None else (1 - beta) * u + beta * v
            w = w - eta * A.delta(w, u, s2, s3)
        return w, u if client.restart is None else None

    return update
