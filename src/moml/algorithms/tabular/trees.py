"""Boosted regression trees in numpy, for tables with few groups: small, shrunken, binned splits.

All trees have the same depth; node n of a tree has the children 2 n + 1 and 2 n + 2.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

BINS = 32  # of each input, at most
ROUNDS, RATE = 300, 0.05
DEPTH = 3
LEAST = 10  # rows of a leaf
RIDGE = 1.0  # rows that a leaf's value is shrunk by
NO_CUT = 1e30  # of a node that does not split: all rows go to the left
SHARE = 0.7  # of the rows and of the inputs that a tree learns from


class Trees(NamedTuple):
    """Trees whose values add up; of node n, rows with x[feature[n]] > cut[n] go to the right."""

    feature: Int[np.ndarray, "trees nodes"]
    cut: Float[np.ndarray, "trees nodes"]
    value: Float[np.ndarray, "trees leaves"]


def tree_answers(
    trees: Trees, x: Float[np.ndarray, "rows inputs"], trees_at_once: int = 64
) -> Float[np.ndarray, " rows"]:
    """The sum of the trees' values for every row.

    >>> one = Trees(np.array([[0]]), np.array([[0.5]]), np.array([[-1.0, 1.0]]))
    >>> tree_answers(one, np.array([[0.0], [1.0]])).tolist()
    [-1.0, 1.0]
    """
    out, rows = np.zeros(len(x)), np.arange(len(x))[:, None]
    depth, nodes = (trees.value.shape[1] - 1).bit_length(), trees.feature.shape[1]
    for first in range(0, len(trees.value), trees_at_once):
        feature, cut, value = (part[first : first + trees_at_once] for part in trees)
        tree = np.arange(len(value))[None]
        node = np.zeros((len(x), len(value)), int)
        for _ in range(depth):
            right = x[rows, feature[tree, node]] > cut[tree, node]
            node = 2 * node + 1 + right
        out += value[tree, node - nodes].sum(axis=1)
    return out


def boost(
    x: Float[np.ndarray, "rows inputs"],
    y: Float[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
    rng: np.random.Generator,
    rounds: int = ROUNDS,
    depth: int = DEPTH,
    share: float = SHARE,
) -> Trees:
    """Fit trees one after the other to what those before leave over.

    A split of rows with residuals e and weights w has the largest gain
    (sum_L w e)^2 / (sum_L w + c) + (sum_R w e)^2 / (sum_R w + c), c = `RIDGE`; a leaf has the value
    rate * sum w e / (sum w + c).
    """
    edges = [_edges(column) for column in x.T]
    bins = np.stack([np.searchsorted(e, c, side="left") for e, c in zip(edges, x.T, strict=True)])
    cuts = np.stack([np.pad(e, (0, BINS - len(e)), constant_values=NO_CUT) for e in edges])
    residual = np.array(y, float)
    made = []
    for _ in range(rounds):
        some = weights * (rng.random(len(y)) < share)
        able = np.flatnonzero(rng.random(len(x.T)) < share)
        tree, leaf = _grow(bins, cuts, residual, some, able, depth)
        residual = residual - tree.value[0][leaf]
        made.append(tree)
    return joined(made)


def joined(made: list[Trees], scale: float = 1.0) -> Trees:
    """All trees of some ensembles, their values times `scale`."""
    feature, cut, value = (np.concatenate(part) for part in zip(*made, strict=True))
    return Trees(feature, cut, scale * value)


def stages(trees: Trees, x: np.ndarray, each: int) -> Iterator[np.ndarray]:
    """The predictions after `each` trees, 2 `each` trees, and so on."""
    total = np.zeros(len(x))
    for first in range(0, len(trees.value), each):
        total = total + tree_answers(Trees(*(part[first : first + each] for part in trees)), x)
        yield total


def _edges(column: np.ndarray) -> np.ndarray:
    """Places between values that make bins of about equally many rows; no cut splits near ones."""
    values = np.unique(column)
    if len(values) > BINS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, BINS), method="nearest"))
    apart = np.diff(values, prepend=-np.inf) > 1e-5 * max(float(np.ptp(values)), 1e-5)
    values = values[apart]
    return (values[:-1] + values[1:]) / 2


def _grow(
    bins: Int[np.ndarray, "inputs rows"],
    cuts: Float[np.ndarray, "inputs bins"],
    residual: np.ndarray,
    weights: np.ndarray,
    able: np.ndarray,
    depth: int,
) -> tuple[Trees, np.ndarray]:
    """One tree, and the leaf of every row."""
    rows, nodes = len(residual), 2**depth - 1
    feature, cut = np.zeros((1, nodes), int), np.full((1, nodes), NO_CUT)
    used = np.flatnonzero(weights > 0)
    node = np.zeros(rows, int)  # within its level
    for level in range(depth):
        width, start = 2**level, 2**level - 1
        if len(able):
            place = (node[used] * len(able))[None] + np.arange(len(able))[:, None]
            place = (place * BINS + bins[able][:, used]).ravel()
            size = width * len(able) * BINS
            total = lambda w: np.bincount(place, np.tile(w, len(able)), size)  # noqa: B023
            shape = (width, len(able), BINS)
            n, w, e = (
                np.cumsum(total(part[used]).reshape(shape), axis=2)
                for part in (np.ones(rows), weights, weights * residual)
            )
            gain = lambda w, e: e**2 / (w + RIDGE)
            every = gain(w[..., -1:] - w, e[..., -1:] - e) + gain(w, e) - gain(w, e)[..., -1:]
            every = np.where((n < LEAST) | (n[..., -1:] - n < LEAST), 0, every)
            best = every.reshape(width, -1).argmax(axis=1)
            found = every.reshape(width, -1)[np.arange(width), best] > 1e-12
            chosen, at = able[best // BINS], best % BINS
            feature[0, start : start + width] = np.where(found, chosen, 0)
            cut[0, start : start + width] = np.where(found, cuts[chosen, at], NO_CUT)
            right = found[node] & (bins[chosen[node], np.arange(rows)] > at[node])
        else:
            right = np.zeros(rows, bool)
        node = 2 * node + right
    sums = lambda w: np.bincount(node, w, nodes + 1)
    value = RATE * sums(weights * residual) / (sums(weights) + RIDGE)
    return Trees(feature, cut, value[None]), node
