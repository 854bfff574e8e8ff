"""Weights of candidates by their predictions of groups that they have not learned from."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

STRENGTH = 3.0  # groups that the prior weights count for
STEPS = 2000  # of the projected gradient


class Stack(NamedTuple):
    """Weights of candidates by number of known rows: those of the largest `known` not above it."""

    known: Int[np.ndarray, " levels"]
    weights: Float[np.ndarray, "levels candidates"]

    def of(self, rows: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n candidates"]:
        """The weights for tasks with these numbers of known rows."""
        return self.weights[np.maximum(np.searchsorted(self.known, rows, side="right") - 1, 0)]


def prior_weights(loss: Float[np.ndarray, " candidates"], groups: int) -> np.ndarray:
    """(least loss / loss)^(groups / 4), as shares of their sum: with few groups all count.

    >>> prior_weights(np.array([1.0, 1.0, 4.0]), 4).tolist()
    [0.4444444444444444, 0.4444444444444444, 0.1111111111111111]
    """
    floor = max(float(loss.min()), 1e-12)
    found = (floor / np.maximum(loss, floor)) ** (groups / 4)
    return found / found.sum()


def stacked(
    errors: Float[np.ndarray, "candidates rows"],
    weigh: Float[np.ndarray, " rows"],
    groups: int,
) -> Float[np.ndarray, " candidates"]:
    """Non-negative weights w of sum one with the least squared error, drawn to the prior p.

        min_w  w' C w + (c / groups) min(diag C) |w - p|^2,    C = mean over rows of e e'

    `errors` are those of cross-fitted predictions; c = `STRENGTH`; p = `prior_weights`. By
    accelerated projected gradient steps.

    >>> stacked(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.ones(2), 100).round(3).tolist()
    [0.5, 0.5]
    """
    share = weigh / max(float(weigh.sum()), 1e-30)
    moments = (errors * share) @ errors.T
    loss = np.diag(moments)
    prior = prior_weights(loss, groups)
    pull = STRENGTH / groups * max(float(loss.min()), 1e-12)
    hessian = moments + pull * np.eye(len(loss))
    step = 1 / np.linalg.eigvalsh(hessian)[-1]
    w = ahead = prior
    momentum = 1.0
    for _ in range(STEPS):
        new = _on_simplex(ahead - step * (hessian @ ahead - pull * prior))
        later = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / later * (new - w)
        w, momentum = new, later
    w = np.where(w < 1e-3, 0, w)
    return w / w.sum()


def _on_simplex(v: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The nearest point with non-negative numbers of sum one."""
    down = np.sort(v)[::-1]
    over = (np.cumsum(down) - 1) / np.arange(1, len(v) + 1)
    last = np.flatnonzero(down > over)[-1]
    return np.maximum(v - over[last], 0)
