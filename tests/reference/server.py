"""The server's part of a round: the mean of what arrived, one model after the other."""

import numpy as np


def average(w: np.ndarray, arrived: list[tuple[np.ndarray, float]]) -> np.ndarray:
    """sum p_i w_i / sum p_i over the (w_i, p_i) that arrived; w where none did."""
    if not arrived:
        return w
    total, weight = np.zeros_like(w), 0.0
    for w_i, p_i in arrived:
        total = total + p_i * w_i
        weight = weight + p_i
    return total / weight
