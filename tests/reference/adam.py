"""Adam's direction, as optax.scale_by_adam gives it."""

import numpy as np


class Adam:
    """Called with one gradient after another."""

    def __init__(self, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8):
        self.b1, self.b2, self.eps = b1, b2, eps
        self.t, self.m, self.v = 0, 0.0, 0.0

    def __call__(self, g: np.ndarray) -> np.ndarray:
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g**2
        m = self.m / (1 - self.b1**self.t)
        v = self.v / (1 - self.b2**self.t)
        return m / (np.sqrt(v) + self.eps)
