"""How well a table's new tasks are predicted, by number of known rows, beside plain rivals."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moml.data.table.target import Target
from moml.errors import DataError
from moml.tabular.model import TableModel
from moml.tabular.rivals import Rivals, learn_rivals
from moml.training.evaluate import levels
from moml.training.progress import bar

MOST = 2000  # tasks that are scored
LEARN = 500  # that rivals learn from
SPREAD = (0.1, 0.25, 0.5, 0.75, 0.9)  # quantiles of the tasks' own scores
COLD = 20  # rows of a task that decide who answers where nothing is known
RESIDUALS = 20_000  # kept for each number of known rows

Rows = list[Int[np.ndarray, " _"]]
Score = dict[str, Any]


class Scored(NamedTuple):
    """Result rows, and of each number of known rows what predictions of numbers were off by."""

    rows: list[Score]
    residuals: dict[int, Float[np.ndarray, " rows"]]


class Parted(NamedTuple):
    """The rows of each task that may be known, in their order, and those that are asked for."""

    known: Rows
    asked: Rows


def parted(groups: Sequence[Any], shots: int, ordered: bool, seed: int) -> Parted:
    """Of each task min(shots, half its rows) to know, the first ones or any; the others asked."""
    chance = np.random.default_rng([seed, 3])
    own = [rows if ordered else chance.permutation(rows) for rows in groups]
    cut = [min(shots, len(rows) // 2) for rows in own]
    return Parted(
        [rows[:c] for rows, c in zip(own, cut, strict=True)],
        [rows[c:] for rows, c in zip(own, cut, strict=True)],
    )


def rivals_of(model: TableModel, x: Any, y: Any, groups: Sequence[Any], seed: int) -> Rivals:
    """The rivals by training tasks, at most some of them."""
    chance = np.random.default_rng([seed, 4])
    some = chance.permutation(len(groups))[:LEARN]
    parts = parted([groups[i] for i in some], model.shots, model.shape.ordered, seed)
    rows, parts = _dense(parts)
    return learn_rivals(x[rows], y[rows], parts.known, parts.asked, model.shape.classes)


def _dense(parts: Parted) -> tuple[Int[np.ndarray, " rows"], Parted]:
    """All these rows, and the places that they have there."""
    both = [*parts.known, *parts.asked]
    places = np.split(np.arange(sum(map(len, both))), np.cumsum([len(own) for own in both])[:-1])
    half = len(parts.known)
    return np.concatenate(both), Parted(places[:half], places[half:])


def unadapted(model: TableModel, x: Any) -> np.ndarray:
    """Answers for rows of tasks of which nothing is known."""
    nothing = model.personal(x[:0], np.zeros(0, np.int32), [np.arange(0)])
    return model.answers(nothing, np.zeros(len(x), int), x)


def cold_start(models: Mapping[str, TableModel], x: Any, y: Any, groups: Sequence[Any]) -> str:
    """Which of the models is best for tasks of which nothing is known, by these tasks."""
    rows = np.concatenate([own[:COLD] for own in groups])

    def loss(name: str) -> float:
        given = unadapted(models[name], x[rows])
        if given.ndim == 1:
            return float(((given - y[rows]) ** 2).mean())
        return float(-np.log(np.maximum(given[np.arange(len(rows)), y[rows]], 1e-12)).mean())

    return min(models, key=loss)


def score_tasks(
    models: Mapping[str, TableModel],
    cold: str,
    rivals: Rivals,
    target: Target,
    x: Any,
    y: Any,
    groups: Sequence[Any],
    *,
    weights: Any = None,
    seed: int = 0,
    progress: bool = False,
) -> Scored:
    """Score every model on the same rows of these tasks, after 0, 1, 2, ... of their others.

    `models` are the personal and the pooled one; the one named `cold` answers for tasks of which
    nothing is known.
    """
    model = models["personal"]
    parts = parted(groups[:MOST], model.shots, model.shape.ordered, seed)
    rows, parts = _dense(parts)
    x, y, classes = x[rows], y[rows], model.shape.classes
    asked = np.concatenate(parts.asked)
    which = np.repeat(np.arange(len(parts.asked)), [len(mine) for mine in parts.asked])
    weigh = np.ones(len(asked)) if weights is None else np.asarray(weights, float)[rows][asked]
    if not weigh.any():
        raise DataError("all rows to score on have the weight 0")
    same = unadapted(models["pooled"], x[asked])
    nobody = same if cold == "pooled" else unadapted(model, x[asked])
    found: list[Score] = []
    residuals = {}
    steps = levels(model.shots)
    with bar("scores", len(steps), shown=progress) as advance:
        for i, k in enumerate(steps):
            known = [mine[:k] for mine in parts.known]
            mine = model.answers(model.personal(x, y, known), which, x[asked]) if k else nobody
            answers = {
                "personal": mine,
                "pooled": same,
                **rivals.answers(x, y, known, which, x[asked], classes),
            }
            for name, given in answers.items():
                each = _errors(target, given, y[asked])
                found += [
                    {"model": name, "shots": k, "metric": metric}
                    | _mean(metric, errors, weigh, which)
                    for metric, errors in each.items()
                ]
            if classes is None:
                off = target.unscale(y[asked]) - target.unscale(mine)
                chance = np.random.default_rng([seed, 5])
                residuals[k] = off if len(off) <= RESIDUALS else chance.choice(off, RESIDUALS)
            advance(i + 1)
    return Scored(found, residuals)


def _errors(target: Target, given: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Every row's share in a metric."""
    if not target.classes:
        return {"rmse": (target.unscale(given) - target.unscale(y)) ** 2}
    right = np.maximum(given[np.arange(len(y)), y].astype(float), 1e-12)
    return {"accuracy": 100.0 * (given.argmax(axis=1) == y), "log_loss": -np.log(right)}


def _mean(metric: str, errors: np.ndarray, weigh: np.ndarray, which: np.ndarray) -> Score:
    """The mean over all rows, and how the tasks' own means lie."""
    of_task = lambda values: np.bincount(which, values)
    total = of_task(weigh)
    some = total > 0
    own = of_task(weigh * errors)[some] / total[some]
    mean = float(np.average(errors, weights=weigh))
    root = np.sqrt if metric == "rmse" else np.asarray
    return {
        "mean": float(root(mean)),
        "std": float(root(own).std()),
        "quantiles": [float(value) for value in np.quantile(root(own), SPREAD)],
        "tasks": int(some.sum()),
        "rows": len(errors),
    }
