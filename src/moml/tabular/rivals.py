"""The plain rivals of a table's run, by its training tasks: a ridge per task, a shrunken mean."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from moml.algorithms.tabular.rivals import (
    best_penalty,
    columns,
    probabilities,
    ridge_per_task,
    shrinkage,
    shrunken_mean,
)


class Rivals(NamedTuple):
    """What was chosen."""

    mean: list[float]  # of the training tasks' targets, a number or one a class
    rows: float | None  # that the mean is worth; None: tasks do not differ
    penalty: float

    def answers(
        self, x: Any, y: Any, known: Sequence[Any], which: Any, asked: Any, classes: int | None
    ) -> dict[str, np.ndarray]:
        """Predictions for rows `asked` of tasks `which`, of which rows known[i] are known."""
        mean, y = np.array(self.mean), columns(y, classes)
        worth = math.inf if self.rows is None else self.rows
        found = {
            "per-task": ridge_per_task(x, y, known, which, asked, mean, self.penalty),
            "shrunken-mean": shrunken_mean(y, known, mean, worth)[which],
        }
        plain = lambda given: given[:, 0] if classes is None else probabilities(given)
        return {name: plain(given) for name, given in found.items()}


def learn_rivals(
    x: Any, y: Any, known: Sequence[Any], asked: Sequence[Any], classes: int | None
) -> Rivals:
    """By training tasks, of which rows known[i] are known and asked[i] asked for."""
    wide = columns(y, classes)
    every = [np.concatenate(both) for both in zip(known, asked, strict=True)]
    mean = wide[np.concatenate(every)].mean(axis=0)
    rows = shrinkage(wide, every)
    flat = np.concatenate(asked)
    which = np.repeat(np.arange(len(asked)), [len(mine) for mine in asked])

    def loss(penalty: float) -> float:
        given = ridge_per_task(x, wide, known, which, x[flat], mean, penalty)
        if classes is None:
            return float(((given - wide[flat]) ** 2).mean())
        return float(-np.log((probabilities(given) * wide[flat]).sum(axis=1)).mean())

    worth = rows if math.isfinite(rows) else None
    return Rivals(mean.tolist(), worth, best_penalty(loss))
