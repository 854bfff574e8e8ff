"""Fits of the simple members of a table, for each fold of its tasks and for all of them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moml.algorithms.tabular.mixed import cross_products, fit_mixed
from moml.algorithms.tabular.simple import Simple, known_mean, tree_inputs
from moml.algorithms.tabular.structures import design_of, structures
from moml.algorithms.tabular.trees import ROUNDS, Trees, boost, joined, stages
from moml.models.table import Knots

EACH = 20  # trees between two looks
ROOM = 0.5  # of the range of the targets, that predictions of a mixed model may lie beyond it

RowLists = Sequence[Int[np.ndarray, " _"]]
Summaries = Callable[[RowLists], Float[np.ndarray, "lists summary"]]


class SimpleFits(NamedTuple):
    """Simple members by name."""

    by_fold: dict[str, list[Simple]]  # each has not seen the tasks of its fold
    whole: dict[str, Simple]


def fit_simple(
    x: Float[np.ndarray, "rows features"],
    y: Float[np.ndarray, " rows"],
    groups: RowLists,
    fold: Int[np.ndarray, " groups"],
    at: Knots,
    *,
    weights: Float[np.ndarray, " rows"] | None,
    known: Sequence[int],
    ordered: bool,
    support: RowLists,
    query: RowLists,
    summaries: Summaries,
    rng: np.random.Generator,
) -> SimpleFits:
    """Mixed models of all structures that the table suggests, and boosted trees.

    `known` are the numbers of known rows to learn for, `support` and `query` the rows of each task
    as it is scored, `summaries` the summaries of lists of known rows. The structures are found on
    all tasks, everything else is fitted without the tasks of a fold.
    """
    weigh = np.ones(len(x)) if weights is None else weights / max(float(weights.mean()), 1e-12)
    products = cross_products(design_of(at, x), y, groups, weigh)
    owned = y[np.concatenate(groups)].astype(float)
    room = ROOM * np.ptp(owned)
    bounds = np.array([owned.min() - room, owned.max() + room])
    by_fold: dict[str, list[Simple]] = {}
    whole: dict[str, Simple] = {}
    for name, structure in structures(products, x.shape[1], at).items():
        full = fit_mixed(products, structure)
        parts = (products[fold != f] for f in range(fold.max() + 1))
        fits = [fit_mixed(part, structure, full.theta) for part in parts]
        by_fold[name] = [fit.model._replace(bounds=bounds) for fit in fits]
        whole[name] = full.model._replace(bounds=bounds)
    pairs = known_and_asked(groups, known, ordered, rng)
    trees = _trees(x, y, pairs, support, query, fold, weigh, summaries, rng)
    by_fold["trees"], whole["trees"] = [*trees], joined(trees, 1 / len(trees))
    return SimpleFits(by_fold, whole)


class Pairs(NamedTuple):
    """Known rows, rows to predict from them, and their task."""

    known: list[np.ndarray]
    asked: list[np.ndarray]
    task: list[int]


def known_and_asked(
    groups: RowLists, known: Sequence[int], ordered: bool, rng: np.random.Generator
) -> Pairs:
    """Every task with each number of known rows that leaves some to predict."""
    found = Pairs([], [], [])
    for k in known:
        for i, rows in enumerate(groups):
            if len(rows) > k:
                own = rows if ordered else rng.permutation(rows)
                found.known.append(own[:k])
                found.asked.append(own[k:])
                found.task.append(i)
    return found


def _trees(
    x: np.ndarray,
    y: np.ndarray,
    pairs: Pairs,
    support: RowLists,
    query: RowLists,
    fold: np.ndarray,
    weigh: np.ndarray,
    summaries: Summaries,
    rng: np.random.Generator,
) -> list[Trees]:
    """Boosted trees for each fold, as many as predict the folds' tasks best.

    They learn as they will be asked: some rows of a task are known, the others predicted.
    """
    summary = summaries([*pairs.known, *support])
    repeat = lambda some, lists: np.repeat(some, [len(rows) for rows in lists], axis=0)
    seen, new = summary[: len(pairs.known)], summary[len(pairs.known) :]
    learn, ask = repeat(seen, pairs.asked), repeat(new, query)
    rows, asked = np.concatenate(pairs.asked), np.concatenate(query)
    inputs, queries = tree_inputs(learn, x[rows]), tree_inputs(ask, x[asked])
    left, off = y[rows] - known_mean(learn), y[asked] - known_mean(ask)
    own, scored = fold[repeat(np.array(pairs.task), pairs.asked)], repeat(fold, query)
    made, loss = [], np.zeros(ROUNDS // EACH)
    for f in range(fold.max() + 1):
        some, mine = own != f, scored == f
        made.append(boost(inputs[some], left[some], weigh[rows[some]], rng))
        for i, given in enumerate(stages(made[-1], queries[mine], EACH)):
            loss[i] += weigh[asked][mine] @ (off[mine] - given) ** 2
    best = EACH * (1 + int(loss.argmin()))
    return [Trees(*(part[:best] for part in one)) for one in made]
