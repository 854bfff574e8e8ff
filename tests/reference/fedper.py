"""FedAvg with leaves that clients keep, train apart or freeze: FedPer, FedRep, FedBABU."""

import numpy as np

from tests.reference.problem import Client, Problem
from tests.reference.server import average

Kept = dict[int, np.ndarray]


def fedper(
    problem: Problem, w: np.ndarray, rounds: list[list[Client]], *, eta: float, private: np.ndarray
) -> tuple[list[np.ndarray], Kept]:
    """The server's model after every round, and the private numbers that clients keep."""
    own, path = {}, []
    for clients in rounds:
        arrived = []
        for client in clients:
            w_i = w.copy()
            w_i[private] = own.get(client.i, w[private])
            for draw in client.steps:
                w_i = w_i - eta * problem.grad(w_i, draw.support)
            if client.present:
                own[client.i] = w_i[private]
                w_i[private] = w[private]  # not sent
                arrived.append((w_i, client.weight))
        w = average(w, arrived)
        path.append(w)
    return path, own


def fedrep(
    problem: Problem,
    w: np.ndarray,
    rounds: list[list[Client]],
    *,
    eta: float,
    head: np.ndarray,
    passes: int,
) -> tuple[list[np.ndarray], Kept]:
    """The server's model after every round, and the heads that clients keep."""
    own, path = {}, []
    for clients in rounds:
        arrived = []
        for client in clients:
            h, b = own.get(client.i, w[head]), w[~head]
            whole = lambda b, h: _joined(b, h, head)
            for _ in range(passes):
                for draw in client.steps:
                    h = h - eta * problem.grad(whole(b, h), draw.support)[head]
            for draw in client.steps:
                b = b - eta * problem.grad(whole(b, h), draw.support)[~head]
            if client.present:
                own[client.i] = h
                arrived.append((b, client.weight))
        w = _joined(average(w[~head], arrived), w[head], head)
        path.append(w)
    return path, own


def fedbabu(
    problem: Problem, w: np.ndarray, rounds: list[list[Client]], *, eta: float, head: np.ndarray
) -> list[np.ndarray]:
    """The server's model after every round; its head is that of the first one."""
    path = []
    for clients in rounds:
        arrived = []
        for client in clients:
            b = w[~head]
            for draw in client.steps:
                b = b - eta * problem.grad(_joined(b, w[head], head), draw.support)[~head]
            if client.present:
                arrived.append((b, client.weight))
        w = _joined(average(w[~head], arrived), w[head], head)
        path.append(w)
    return path


def _joined(body: np.ndarray, h: np.ndarray, head: np.ndarray) -> np.ndarray:
    w = np.empty(len(head))
    w[~head], w[head] = body, h
    return w
