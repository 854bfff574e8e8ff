"""Fits of the simple members of a table, for each fold of its tasks and for all of them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moml.algorithms.tabular.links import OWN, linked, log_link
from moml.algorithms.tabular.logistic import fit_logistic, outputs
from moml.algorithms.tabular.mixed import (
    FAR,
    FREE,
    MixedModel,
    Structure,
    cross_products,
    fit_mixed,
)
from moml.algorithms.tabular.rivals import Rivals
from moml.algorithms.tabular.simple import Simple, known_mean, tree_inputs
from moml.algorithms.tabular.structures import VARIES, WIDE, design_of, structures
from moml.algorithms.tabular.trees import ROUNDS, Trees, boost, joined, stages
from moml.models.table import Knots

EACH = 20  # trees between two looks
ROOM = 0.5  # of the range of the targets, that predictions of a mixed model may lie beyond it

LOGISTIC = 20_000  # rows times outputs that a logistic model learns from
CROSSED, LEAST = 30_000_000, 200  # numbers in the cross products of mixed models; groups at least
DESIGN, PIECES = 40_000_000, 400  # numbers in their design; its columns, else without splines
ASKED, ROWS = 16, 10_000  # rows asked of a group at once, and in all, that trees learn from
CELLS = 1_000_000  # of the inputs that trees learn from

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
    shift: float,
    weights: Float[np.ndarray, " rows"] | None,
    known: Sequence[int],
    ordered: bool,
    support: RowLists,
    query: RowLists,
    summaries: Summaries,
    rivals: Sequence[Rivals],
    rng: np.random.Generator,
) -> SimpleFits:
    """Mixed models of all structures that the table suggests, and boosted trees.

    `shift` is the target's mean over its deviation: where targets y + shift are positive and differ
    by factors, there are mixed models of their logarithms too. `known` are the numbers of known
    rows to learn for, `support` and `query` the rows of each task as it is scored, `summaries` the
    summaries of lists of known rows, `rivals` the baselines of each fold and of all tasks. The
    structures are found on all tasks, everything else is fitted without the tasks of a fold. Of
    many groups mixed models learn from some, and trees from some rows. Tables of many inputs have
    no splines.
    """
    weigh = np.ones(len(x)) if weights is None else weights / max(float(weights.mean()), 1e-12)
    columns = 1 + x.shape[1] + len(at.column)
    bent = at if columns <= PIECES else Knots(*(part[:0] for part in at))
    width = 1 + x.shape[1] + len(bent.column)
    most = max(LEAST, CROSSED // (1 + width) ** 2)
    some = _some(np.arange(len(groups)), most, rng)
    many = max(2, DESIGN // (columns * len(some)))
    each = [_some(groups[i], many, rng) for i in some.tolist()]
    rows = np.concatenate(each)
    places = np.split(np.arange(len(rows)), np.cumsum([len(part) for part in each])[:-1])
    design, owned = design_of(at, x[rows])[:, :width], y[np.concatenate(groups)].astype(float)
    room = ROOM * np.ptp(owned)
    bounds = np.array([owned.min() - room, owned.max() + room])
    by_fold: dict[str, list[Simple]] = {}
    whole: dict[str, Simple] = {}
    for before, link in {"": OWN, "log-": log_link(owned, shift)}.items():
        if link is None:
            continue
        products = cross_products(design, linked(link, y[rows]), places, weigh[rows])
        for kind, structure in structures(products, x.shape[1], bent).items():
            full = fit_mixed(products, structure)
            parts = (products[fold[some] != f] for f in range(fold.max() + 1))
            fits = [full, *(fit_mixed(part, structure, full.theta) for part in parts)]
            models = [fit.model._replace(bounds=bounds, link=link) for fit in fits]
            whole[before + kind], by_fold[before + kind] = models[0], [*models[1:]]
    if x.shape[1] <= WIDE:
        alone = [ridge_alone(one, x.shape[1])._replace(bounds=bounds) for one in rivals]
        by_fold["alone"], whole["alone"] = [*alone[:-1]], alone[-1]
    pairs = known_and_asked(groups, known, ordered, rng)
    inputs = x.shape[1] + summaries([groups[0][:0]]).shape[1]
    if sum(map(len, pairs.asked)) > (least := min(ROWS, CELLS // inputs)):
        pairs = bounded(pairs, ASKED, least, rng)
    trees = _trees(x, y, pairs, support, query, fold, weigh, summaries, rng)
    by_fold["trees"], whole["trees"] = [*trees], joined(trees, 1 / len(trees))
    return SimpleFits(by_fold, whole)


def _some(
    values: Int[np.ndarray, " n"], most: int, rng: np.random.Generator
) -> Int[np.ndarray, " m"]:
    """At most so many of the values, in their order."""
    if len(values) <= most:
        return values
    return values[np.sort(rng.choice(len(values), most, replace=False))]


def ridge_alone(rivals: Rivals, features: int) -> MixedModel:
    """The ridge of each task alone, of the baselines, as a mixed model with given variances.

    Its intercept has variance `FREE`, its slopes 1 / penalty, and the noise 1.
    """
    return MixedModel(
        np.array([0]), np.array(rivals.mean), np.arange(1 + features),
        np.diag([FREE, *[1 / rivals.penalty] * features]), np.asarray(1.0),
        np.array([-FAR, FAR]),
    )  # fmt: skip


def fit_logistics(
    x: Float[np.ndarray, "rows features"],
    y: Int[np.ndarray, " rows"],
    classes: int,
    groups: RowLists,
    fold: Int[np.ndarray, " groups"],
    at: Knots,
    *,
    weights: Float[np.ndarray, " rows"] | None,
    rng: np.random.Generator,
) -> SimpleFits:
    """Logistic models with a random intercept: without inputs, and with all of them.

    Inputs that vary within groups share one prior variance, the others another. Fits without the
    tasks of a fold begin with that of all tasks.
    """
    weigh = np.ones(len(x)) if weights is None else weights / max(float(weights.mean()), 1e-12)
    most = max(1, LOGISTIC // (outputs(classes) * len(groups)))
    some = [_some(rows, most, rng) for rows in groups]
    design, lines = design_of(at, x), range(1, x.shape[1] + 1)
    several = [rows for rows in groups if len(rows) > 1]
    moves = np.array([np.ptp(x[rows], axis=0) > 1e-6 for rows in several])
    within = moves.reshape(len(several), x.shape[1]).mean(axis=0) > VARIES
    prior = (-1, *(int(within.any() and not within[j - 1]) for j in lines))
    tried = {"level": Structure((0,), (-1,), (0,))}
    tried |= {"logistic": Structure((0, *lines), prior, (0,))} if lines else {}
    by_fold: dict[str, list[Simple]] = {}
    whole: dict[str, Simple] = {}
    for name, structure in tried.items():
        fit = lambda rows, start=None, s=structure: fit_logistic(
            design, y, rows, s, classes, weigh, start
        )
        full = fit(some)
        rest = lambda f: [rows for rows, mine in zip(some, fold, strict=True) if mine != f]
        by_fold[name] = [fit(rest(f), full).model for f in range(fold.max() + 1)]
        whole[name] = full.model
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


def bounded(pairs: Pairs, each: int, most: int, rng: np.random.Generator) -> Pairs:
    """Some of the pairs, with at most `each` asked rows each and `most` in all.

    >>> pairs = Pairs([np.arange(2)] * 9, [np.arange(2, 6)] * 9, [*range(9)])
    >>> sum(map(len, bounded(pairs, 3, 12, np.random.default_rng(0)).asked))
    12
    """
    cut = lambda rows: rows if len(rows) <= each else rng.choice(rows, each, replace=False)
    order = rng.permutation(len(pairs.asked))
    asked = [cut(pairs.asked[i]) for i in order]
    fits = max(1, int(np.searchsorted(np.cumsum([len(rows) for rows in asked]), most, "right")))
    some = order[:fits].tolist()
    return Pairs([pairs.known[i] for i in some], asked[:fits], [pairs.task[i] for i in some])


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
    """Boosted trees for each fold, as many as predict the tasks of the other folds best.

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
    made, loss = [], np.zeros((fold.max() + 1, ROUNDS // EACH))
    for f in range(len(loss)):
        some, mine = own != f, scored == f
        made.append(boost(inputs[some], left[some], weigh[rows[some]], rng))
        for i, given in enumerate(stages(made[-1], queries[mine], EACH)):
            loss[f, i] = weigh[asked][mine] @ (off[mine] - given) ** 2
    best = EACH * (1 + (loss.sum(axis=0) - loss).argmin(axis=1))
    return [Trees(*(part[:n] for part in one)) for n, one in zip(best, made, strict=True)]
