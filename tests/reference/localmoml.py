"""LocalMOML (Algorithm 3): H local steps at each client, then the mean."""

import numpy as np

from tests.reference.adaptation import Adaptation
from tests.reference.problem import Client


def localmoml(
    A: Adaptation, w: np.ndarray, rounds: list[list[Client]], *, eta: float, beta: float
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The server's model after every round, and the memories that clients carry."""
    carried, path = {}, []
    for clients in rounds:  # line 3
        sent = []
        for i, restart, steps in clients:
            w_i = w
            u = carried.get(i) if restart is None else A.apply(w_i, restart)  # lines 5 to 9
            for _, s1, s2, s3 in steps:  # line 10
                v = A.apply(w_i, s1)
                u = v if u is None else (1 - beta) * u + beta * v  # line 11
                w_i = w_i - eta * A.delta(w_i, u, s2, s3)  # line 12
            if restart is None:
                carried[i] = u
            sent.append(w_i)  # line 14
        w = np.mean(sent, axis=0)  # line 16
        path.append(w)
    return path, carried
