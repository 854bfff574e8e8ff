"""LocalMOML (Algorithm 3): H local steps at each client, then the mean."""

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Client
from tests.reference.server import average


def localmoml(
    A: Adaptation, w: np.ndarray, rounds: list[list[Client]], *, eta: float, beta: float
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, and the memories that clients carry."""
    carried, path = {}, []
    for clients in rounds:  # line 3
        arrived = []
        for i, restart, steps, present, weight in clients:
            w_i = w
            u = carried.get(i) if restart is None else A.apply(w_i, restart)  # lines 5 to 9
            for _, s1, s2, s3 in steps:  # line 10
                v = A.apply(w_i, s1)
                u = v if u is None else (1 - beta) * u + beta * v  # line 11
                w_i = w_i - eta * A.delta(w_i, u, s2, s3)  # line 12
            if present and restart is None:
                carried[i] = u
            if present:
                arrived.append((w_i, weight))  # line 14
        w = average(w, arrived)  # line 16
        path.append(w)
    return path, carried
