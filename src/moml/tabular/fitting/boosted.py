"""A rival in the table of scores, where it is installed: LightGBM with features of the known rows.

It is no part of the model, and a run does not keep it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moml.algorithms.tabular.rivals import columns
from moml.algorithms.tabular.simple_fit import bounded, known_and_asked

if TYPE_CHECKING:
    from lightgbm import Booster

    from moml.tabular.rows import RowLists

NAME = "lightgbm"
ROUNDS, PATIENCE = 300, 40  # trees; one fold alone stops when so many did not help
SETTINGS = {
    "num_leaves": 15, "learning_rate": 0.05, "min_data_in_leaf": 20, "feature_fraction": 0.8,
    "bagging_fraction": 0.8, "bagging_freq": 1, "verbosity": -1, "deterministic": True,
    "force_row_wise": True, "max_bin": 63,
}  # fmt: skip
TASKS, EACH, MOST = 5_000, 16, 30_000  # tasks, rows asked of one at once, and rows to learn from
TWO = 20_000  # rows to learn from by two threads


class Boosted(NamedTuple):
    """Trees over a row beside the features of its task's known rows."""

    trees: "Booster"
    rounds: int

    def answers(
        self,
        x: np.ndarray,
        y: np.ndarray,
        support: "RowLists",
        which: np.ndarray,
        query: np.ndarray,
        classes: int | None,
    ) -> dict[str, np.ndarray]:
        """Predictions for rows `query` of tasks `which`, given the rows support[i] of task i."""
        inputs = np.column_stack([query, known_features(x, columns(y, classes), support)[which]])
        given = np.asarray(self.trees.predict(inputs, num_iteration=self.rounds, num_threads=1))
        return {NAME: np.column_stack([1 - given, given]) if classes == 2 else given}


def known_features(
    x: Float[np.ndarray, "rows features"], y: Float[np.ndarray, "rows out"], known: "RowLists"
) -> Float[np.ndarray, "lists inputs"]:
    """Number of the known rows, their mean, newest and spread of the target, mean and newest input.

    >>> known_features(np.array([[2.0], [4.0]]), np.array([[1.0], [3.0]]), [[0, 1], []]).tolist()
    [[2.0, 2.0, 3.0, 1.0, 3.0, 4.0], [0.0, nan, nan, nan, nan, nan]]
    """
    found = np.full((len(known), 1 + 3 * y.shape[1] + 2 * x.shape[1]), np.nan)
    found[:, 0] = [len(rows) for rows in known]
    for i, rows in enumerate(known):
        if len(rows):
            a, b = y[rows], x[rows]
            found[i, 1:] = np.concatenate([a.mean(0), a[-1], a.std(0), b.mean(0), b[-1]])
    return found


def boosted(
    x: np.ndarray,
    y: np.ndarray,
    groups: "RowLists",
    folds: Sequence[Int[np.ndarray, " _"]],
    *,
    known: Sequence[int],
    ordered: bool,
    classes: int | None,
    weights: np.ndarray | None,
    seed: int,
) -> list[Boosted]:
    """LightGBM for each fold: it learns from the tasks that are not in folds[f].

    It learns as it will be asked: `known` numbers of rows of a task are known, others predicted.
    All folds have the number of trees with the least loss on their own tasks. Without the package
    there are none.
    """
    try:
        import lightgbm as lgb
    except (ImportError, OSError):  # OSError: a library that it needs is not there
        return []
    rng = np.random.default_rng([seed, 8])
    wide = columns(y, classes)
    outputs = classes if classes is not None and classes > 2 else 1
    objective = "regression" if classes is None else "binary" if outputs == 1 else "multiclass"
    how = SETTINGS | {"objective": objective, "num_class": outputs, "seed": seed % 2**31}

    def dataset(tasks: np.ndarray, most: int, like: lgb.Dataset | None = None) -> lgb.Dataset:
        some = [groups[i] for i in rng.permutation(tasks)[:TASKS]]
        pairs = known_and_asked(some, known, ordered, rng)
        pairs = bounded(pairs, EACH, max(1, most // outputs), rng)
        rows = np.concatenate(pairs.asked)
        seen = known_features(x, wide, pairs.known)
        beside = np.repeat(seen, [len(asked) for asked in pairs.asked], axis=0)
        inputs, weigh = (
            np.column_stack([x[rows], beside]),
            None if weights is None else weights[rows],
        )
        return lgb.Dataset(inputs, y[rows], reference=like, weight=weigh)

    stop = [lgb.early_stopping(PATIENCE, verbose=False)] if len(folds) == 1 else []
    made, loss, every = [], np.zeros(ROUNDS), np.arange(len(groups))
    for mine in folds:
        able = [i for i in mine if len(groups[i])]
        learn = dataset(np.setdiff1d(every, mine), MOST)
        held = dataset(np.array(able), MOST // 5, learn)
        curve: dict[str, dict[str, list[float]]] = {}
        threads = {"num_threads": 2 if len(learn.get_label()) >= TWO else 1}
        made.append(
            lgb.train(
                how | threads, learn, ROUNDS, valid_sets=[held],
                callbacks=[lgb.record_evaluation(curve), *stop],
            )
        )  # fmt: skip
        [by_round] = curve["valid_0"].values()
        loss = loss[: len(by_round)] + len(held.get_label()) * np.array(by_round)
    best = 1 + int(loss.argmin())
    return [Boosted(trees, best) for trees in made]
