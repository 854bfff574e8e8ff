"""Per-FedAvg: H local steps of MAML at each client, then the mean."""

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Client
from tests.reference.server import average


def perfedavg(
    A: Adaptation, w: np.ndarray, rounds: list[list[Client]], *, eta: float
) -> list[np.ndarray]:
    """The server's model after every round."""
    path = []
    for clients in rounds:
        arrived = []
        for client in clients:
            w_i = w
            for _, s1, s2, s3 in client.steps:
                v = A.apply(w_i, s1)
                w_i = w_i - eta * A.delta(w_i, v, s2, s3)
            if client.present:
                arrived.append((w_i, client.weight))
        w = average(w, arrived)
        path.append(w)
    return path
