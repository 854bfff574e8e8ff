"""Weights of candidates by their predictions of groups that they have not learned from."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

DRAWS = 200  # of the groups' weights
LEAST = 1e-3  # a smaller weight is 0
STRENGTH = 10.0  # groups that the prior weights of classes count for
SHARP = 0.25  # how much these count differences in log-loss
ROUNDS = 500  # of the EM algorithm


class Stack(NamedTuple):
    """Weights of candidates by number of known rows: those of the largest `known` not above it."""

    known: Int[np.ndarray, " levels"]
    weights: Float[np.ndarray, "levels candidates"]

    def of(self, rows: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n candidates"]:
        """The weights for tasks with these numbers of known rows."""
        return self.weights[np.maximum(np.searchsorted(self.known, rows, side="right") - 1, 0)]


def stacked(
    errors: Float[np.ndarray, "candidates rows"],
    weigh: Float[np.ndarray, " rows"],
    which: Int[np.ndarray, " rows"],
) -> Float[np.ndarray, " candidates"]:
    """Weights w of sum one: how likely each candidate is the best one for new groups.

        w_j = mean over draws g of  L_j(g)^-c / sum_k L_k(g)^-c,    c = sqrt(n log m),
        g ~ Dirichlet(1, ..., 1)

    `errors` are those of cross-fitted predictions, `which` the groups of the rows, L_j(g) the mean
    square of candidate j's errors where the rows of group i weigh g_i, n the number of groups and m
    that of candidates: the rows of a group count as one observation, since they are alike. This is
    pseudo-Bayesian model averaging with the Bayesian bootstrap (Yao et al., 2018), with the rate of
    exponentially weighted averages instead of n / 2: candidates share the weight for longer. With
    few groups the draws differ much, so that many share it; with many the best ones have it.

    >>> stacked(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.ones(2), np.arange(2)).tolist()
    [0.5, 0.5]
    """
    group = np.unique(which, return_inverse=True)[1]
    n = int(group.max()) + 1
    squares = np.stack([np.bincount(group, weigh * e**2, n) for e in errors], axis=1)
    rows = np.bincount(group, weigh, n)
    g = np.random.default_rng(0).dirichlet(np.ones(n), DRAWS)
    loss = g @ squares / np.maximum(g @ rows, 1e-30)[:, None]
    least = np.maximum(loss.min(axis=1, keepdims=True), 1e-12)
    share = (least / np.maximum(loss, least)) ** np.sqrt(n * np.log(len(errors)))
    w = (share / share.sum(axis=1, keepdims=True)).mean(axis=0)
    w = np.where(w < LEAST, 0, w)
    return w / w.sum()


def averaged(
    weights: Float[np.ndarray, "#rows candidates"],
    given: Float[np.ndarray, "candidates rows ..."],
) -> tuple[Float[np.ndarray, "rows ..."], Float[np.ndarray, " rows"]]:
    """The weighted mean of the candidates' predictions for each row, and their spread about it.

        p = sum_j w_j p_j,    d^2 = sum_j w_j |p_j - p|^2

    >>> mean, spread = averaged(np.array([[0.5, 0.5]]), np.array([[1.0, 2.0], [3.0, 2.0]]))
    >>> mean.tolist(), spread.tolist()
    ([2.0, 2.0], [1.0, 0.0])
    """
    w = weights.T.reshape(len(given), -1, *[1] * (given.ndim - 2))
    mean = np.sum(w * given, axis=0)
    square = w * (given - mean) ** 2
    return mean, np.sqrt(square.sum(axis=(0, *range(2, given.ndim))))


def stacked_chances(
    chances: Float[np.ndarray, "candidates rows"],
    weigh: Float[np.ndarray, " rows"],
    which: Int[np.ndarray, " rows"],
) -> Float[np.ndarray, " candidates"]:
    """Non-negative weights w of sum one with the least log-loss, drawn to the prior p.

        min_w  -mean over rows of log(w' a) - (c / n) sum_j p_j log w_j

    `chances` a are those that the candidates gave, cross-fitted, to the class of each row, and
    `which` the n groups of the rows; c = `STRENGTH`; p_j is proportional to
    exp(-n * `SHARP` * log-loss of j). By the EM algorithm.

    >>> a = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> stacked_chances(a, np.ones(2), np.arange(2)).round(3).tolist()
    [0.5, 0.5]
    """
    groups = len(np.unique(which))
    share = weigh / max(float(weigh.sum()), 1e-30)
    given = np.maximum(chances, 1e-12)
    loss = -np.log(given) @ share
    prior = np.exp(-groups * SHARP * (loss - loss.min()))
    prior = prior / prior.sum()
    pull, w = STRENGTH / groups, prior
    for _ in range(ROUNDS):
        w = (w * (given @ (share / (w @ given))) + pull * prior) / (1 + pull)
    w = np.where(w < LEAST, 0, w)
    return w / w.sum()
