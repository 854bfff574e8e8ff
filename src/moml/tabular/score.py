"""Scores of a table model on new tasks, by number of known rows, beside plain baselines."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moml.algorithms.tabular.rivals import Rivals, learn_rivals, row_losses
from moml.data.table.target import Target
from moml.errors import DataError
from moml.tabular.fitting.boosted import Boosted
from moml.tabular.model import TableModel
from moml.tabular.rows import RowLists, Rows, SupportQuery, split_rows
from moml.training.evaluate import levels
from moml.training.progress import bar
from moml.types import Record

MOST = 2000  # tasks to score, at most
LEARN = 500  # tasks that the baselines are fitted to, at most
SPREAD = (0.1, 0.25, 0.5, 0.75, 0.9)  # quantiles of the tasks' scores
COLD = 20  # rows per task that decide which model predicts for tasks without known rows
RESIDUALS = 20_000  # kept for each number of known rows, at most
DRAWS = 500  # of tasks, for an interval of a difference

Models = Mapping[str, TableModel]  # "personal" and "pooled"


class Scored(NamedTuple):
    """Result rows, and of numbers the residuals by number of known rows."""

    rows: list[Record]
    residuals: dict[int, Float[np.ndarray, "_ 3"]]  # numbers of their tasks, and spreads


def fit_rivals(
    model: TableModel, x: np.ndarray, y: np.ndarray, groups: RowLists, seed: int
) -> Rivals:
    """Fit the baselines to training tasks, at most `LEARN` of them."""
    some = np.random.default_rng([seed, 4]).permutation(len(groups))[:LEARN]
    rows, parts = _split(model, [groups[i] for i in some], seed)
    return learn_rivals(x[rows], y[rows], parts.support, parts.query, model.shape.classes)


def _split(
    model: TableModel, groups: RowLists, seed: int
) -> tuple[Int[np.ndarray, " rows"], SupportQuery]:
    """All rows of these tasks, and support and query as places among them."""
    rng = np.random.default_rng([seed, 3])
    parts = split_rows(groups, model.shots, model.shape.ordered, rng)
    both = [*parts.support, *parts.query]
    places = np.split(np.arange(sum(map(len, both))), np.cumsum([len(some) for some in both])[:-1])
    return np.concatenate(both), SupportQuery(places[: len(groups)], places[len(groups) :])


def cold_start(models: Models, x: np.ndarray, y: np.ndarray, groups: RowLists) -> str:
    """The name of the model that predicts best without known rows, on these tasks."""
    rows = np.concatenate([some[:COLD] for some in groups])
    classes = models["personal"].shape.classes
    loss = lambda name: row_losses(models[name].unadapted(x[rows]), y[rows], classes).mean()
    return min(models, key=loss)


def score_tasks(
    models: Models,
    cold: str,
    rivals: Rivals,
    target: Target,
    given: Rows,
    tasks: Sequence[int],
    *,
    seed: int,
    progress: bool,
    more: Sequence[Boosted] = (),
) -> Scored:
    """Score all models on the same query rows of some tasks, after 0, 1, 2, ... known rows.

    The model named `cold` predicts where no row is known. `more` are further rivals.
    """
    model = models["personal"]
    rows, parts = _split(model, [given.groups.rows(i) for i in tasks[:MOST]], seed)
    x, y, classes = given.x[rows], given.y[rows], model.shape.classes
    query = np.concatenate(parts.query)
    which = np.repeat(np.arange(len(parts.query)), [len(some) for some in parts.query])
    weigh = np.ones(len(query))
    if given.weights is not None:
        weigh = given.weights[rows][query].astype(float)
    if not weigh.any():
        raise DataError("some rows to score on must have a positive weight; all weights are 0")
    pooled = models["pooled"].unadapted(x[query])
    nobody = np.zeros(len(query), int)
    start, apart = model.answers_and_spread(model.start(), nobody, x[query])
    if cold == "pooled":
        start, apart = pooled, 0 * apart
    found: list[Record] = []
    residuals = {}
    others: Sequence[Rivals | Boosted] = (rivals, *more)
    steps = levels(model.shots)
    with bar("scores", len(steps), shown=progress) as advance:
        for i, k in enumerate(steps):
            support = [some[:k] for some in parts.support]
            personal, spread = start, apart
            if k:
                own = model.personal(x, y, support)
                personal, spread = model.answers_and_spread(own, which, x[query])
            answers = {
                "personal": personal,
                "pooled": pooled,
            }
            for rival in others:
                answers |= rival.answers(x, y, support, which, x[query], classes)
            found += score_rows(target, answers, start, y[query], weigh, which, k)
            if classes is None:
                off = target.unscale(y[query]) - target.unscale(personal)
                both = np.column_stack([off, which, spread * target.scale.std])
                residuals[k] = some_residuals(both, [seed, 5])
            advance(i + 1)
    return Scored(found, residuals)


def some_residuals(both: Float[np.ndarray, "_ 3"], seed: Sequence[int]) -> Float[np.ndarray, "_ 3"]:
    """At most `RESIDUALS` of the rows."""
    if len(both) <= RESIDUALS:
        return both
    return np.random.default_rng(seed).choice(both, RESIDUALS, replace=False)


def score_rows(
    target: Target,
    answers: Mapping[str, np.ndarray],
    start: np.ndarray,
    y: np.ndarray,
    weigh: np.ndarray,
    which: np.ndarray,
    known: int,
) -> list[Record]:
    """Result rows of all models' answers for the same rows of tasks `which`.

    `above` is an interval of a row's score less that of the personal model, of the personal model's
    own row of its score without known rows, by the answers `start`, less this one.
    """
    personal, found = _errors(target, answers["personal"], y), []
    for name, some in answers.items():
        other = _errors(target, start if name == "personal" else some, y)
        for metric, errors in _errors(target, some, y).items():
            above = paired(metric, other[metric], personal[metric], weigh, which)
            row = {"model": name, "shots": known, "metric": metric, "above": above}
            found.append(row | _mean(metric, errors, weigh, which))
    return found


def paired(
    metric: str,
    errors: Float[np.ndarray, " rows"],
    personal: Float[np.ndarray, " rows"],
    weigh: Float[np.ndarray, " rows"],
    which: Int[np.ndarray, " rows"],
) -> list[float]:
    """What 95 % of draws of tasks, with replacement, give as score of `errors` less the other.

    >>> paired("rmse", np.array([4.0, 4.0]), np.ones(2), np.ones(2), np.array([0, 1]))
    [1.0, 1.0]
    """
    tasks = np.unique(which, return_inverse=True)[1]
    total = [np.bincount(tasks, weigh * part) for part in (np.ones(len(weigh)), errors, personal)]
    n, rng = len(total[0]), np.random.default_rng(0)
    rows, *sums = (rng.multinomial(n, np.full(n, 1 / n), DRAWS) @ np.stack(total, axis=1)).T
    some = rows > 0
    means = [part[some] / rows[some] for part in sums]
    one, other = map(np.sqrt, means) if metric == "rmse" else means
    return np.quantile(one - other, (0.025, 0.975)).tolist() if some.any() else [0.0, 0.0]


def _errors(target: Target, given: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Every row's share in each metric."""
    if not target.classes:
        return {"rmse": row_losses(target.unscale(given), target.unscale(y))}
    log_loss = row_losses(given.astype(float), y, len(target.classes))
    return {"accuracy": 100.0 * (given.argmax(axis=1) == y), "log_loss": log_loss}


def _mean(metric: str, errors: np.ndarray, weigh: np.ndarray, which: np.ndarray) -> Record:
    """The weighted mean over all rows, and the distribution of the tasks' means."""
    total = np.bincount(which, weigh)
    some = total > 0
    by_task = np.bincount(which, weigh * errors)[some] / total[some]
    mean = float(np.average(errors, weights=weigh))
    root = np.sqrt if metric == "rmse" else np.asarray
    return {
        "mean": float(root(mean)),
        "std": float(root(by_task).std()),
        "quantiles": [float(value) for value in np.quantile(root(by_task), SPREAD)],
        "tasks": int(some.sum()),
        "rows": len(errors),
    }
