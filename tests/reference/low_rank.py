"""A low-rank adapter of the sigmoid problem, its derivatives written out by the chain rule."""

from typing import Any

import numpy as np

from tests.reference.problem import SIGMOID, Problem

C = np.array([1.0, -0.5])  # what the matrix W is multiplied by


def low_rank(W: np.ndarray) -> Problem:
    """The sigmoid problem at w = ((W + b a) c, head), over p = (b [3], a [2], head [2])."""

    def point(p: np.ndarray) -> np.ndarray:
        b, a, head = np.split(p, [3, 5])
        return np.concatenate([W @ C + b * (a @ C), head])

    def jacobian(p: np.ndarray) -> np.ndarray:
        b, a, _ = np.split(p, [3, 5])
        J = np.zeros((5, 7))
        J[:3, :3] = (a @ C) * np.eye(3)  # dw / db
        J[:3, 3:5] = np.outer(b, C)  # dw / da
        J[3:, 5:] = np.eye(2)
        return J

    def grad(p: np.ndarray, batch: Any) -> np.ndarray:
        return jacobian(p).T @ SIGMOID.grad(point(p), batch)

    def hess(p: np.ndarray, batch: Any) -> np.ndarray:
        J, g = jacobian(p), SIGMOID.grad(point(p), batch)
        H = J.T @ SIGMOID.hess(point(p), batch) @ J
        H[:3, 3:5] += np.outer(g[:3], C)  # d2 w_i / db_i da = c
        H[3:5, :3] += np.outer(C, g[:3])
        return H

    return Problem(lambda p, batch: SIGMOID.value(point(p), batch), grad, hess)
