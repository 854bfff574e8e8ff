"""What people use instead: boosted trees and mixed models, each tuned on the validation groups.

A rival is a function of a split: it gives predictions for the query rows of the test groups. It
may look at all rows of the training groups, at the support rows of the held-out ones, and, to
choose its settings, at the validation groups' query rows.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gpboost as gpb
import lightgbm as lgb
import numpy as np

from tables import Part, Split

Rival = Callable[[Split], np.ndarray]
ROUNDS, PATIENCE, RATE = 1000, 50, 0.05


def loss_of(s: Split, y: np.ndarray, predicted: np.ndarray) -> float:
    """What is compared on validation groups: RMSE, or the log-loss of the second class."""
    if s.classes is None:
        return float(np.sqrt(np.mean((y - predicted) ** 2)))
    p = np.clip(predicted, 1e-6, 1 - 1e-6)
    return float(-np.mean(np.where(y == 1, np.log(p), np.log(1 - p))))


def _flat(groups: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(groups)


def _known(s: Split) -> np.ndarray:
    """Rows with a known target: the training groups, and the held-out ones' support."""
    return np.concatenate([_flat(s.train), _flat(s.valid.support), _flat(s.test.support)])


def _best(candidates: Iterator[tuple[float, np.ndarray]]) -> np.ndarray:
    return min(candidates, key=lambda pair: pair[0])[1]


def _lightgbm(s: Split, x: Any, y: Any, valid: Any, test: Any, categories: Any = ()) -> np.ndarray:
    """Trees of several sizes, each stopped early on the validation groups' query rows."""
    at = s.y[_flat(s.valid.query)]
    objective = "regression" if s.classes is None else "binary"

    def each() -> Iterator[tuple[float, np.ndarray]]:
        for leaves in (4, 8, 16, 31):
            for least in (20, 60):
                settings = {
                    "objective": objective, "num_leaves": leaves, "learning_rate": RATE,
                    "min_data_in_leaf": least, "feature_fraction": 0.8, "bagging_fraction": 0.8,
                    "bagging_freq": 1, "verbosity": -1, "num_threads": 1, "seed": 0,
                }  # fmt: skip
                options = {"categorical_feature": list(categories), "free_raw_data": False}
                data = lgb.Dataset(x, y, **options)
                stop = lgb.early_stopping(PATIENCE, verbose=False)
                held = lgb.Dataset(valid, at, reference=data, free_raw_data=False)
                trees = lgb.train(settings, data, ROUNDS, valid_sets=[held], callbacks=[stop])
                yield loss_of(s, at, trees.predict(valid)), trees.predict(test)

    return _best(each())


def pooled(s: Split) -> np.ndarray:
    """LightGBM, one model for all."""
    rows = _known(s)
    return _lightgbm(s, s.x[rows], s.y[rows], s.x[_flat(s.valid.query)], s.x[_flat(s.test.query)])


def category(s: Split) -> np.ndarray:
    """LightGBM with the group as a category."""
    x = np.column_stack([s.x, s.group])
    rows, last = _known(s), [s.x.shape[1]]
    return _lightgbm(s, x[rows], s.y[rows], x[_flat(s.valid.query)], x[_flat(s.test.query)], last)


def summary(s: Split, support: np.ndarray) -> np.ndarray:
    """Mean, last and spread of the known targets, their number, the mean and last inputs."""
    y, x = s.y[support], s.x[support]
    return np.concatenate([[y.mean(), y[-1], y.std(), len(y)], x.mean(0), x[-1]])


def _asked(s: Split, part: Part) -> np.ndarray:
    """Query rows beside the summary of their group's support."""
    pairs = zip(part.support, part.query, strict=True)
    return np.concatenate(
        [np.column_stack([s.x[q], np.tile(summary(s, k), (len(q), 1))]) for k, q in pairs]
    )


def with_support(s: Split) -> np.ndarray:
    """LightGBM with features of the rows that are known of the group.

    It learns from the training groups as it will be asked: the first rows, as many as a new group
    will bring, are support and the later rows query; and again with every smaller number of them
    (without an order: with several random supports).
    """
    chance = np.random.default_rng(0)
    x, y = [], []
    for rows in s.train:
        if len(rows) < 2:
            continue
        usual = max(1, min(s.shots, len(rows) // 2))
        for k in range(1, usual + 1):
            own = rows if s.ordered else chance.permutation(rows)
            x.append(_asked(s, Part([own[:k]], [own[k:]])))
            y.append(s.y[own[k:]])
    return _lightgbm(s, np.concatenate(x), np.concatenate(y), _asked(s, s.valid), _asked(s, s.test))


def per_group(s: Split) -> np.ndarray:
    """A ridge for each group, from its own support alone; the penalty by the validation groups."""

    def predict(part: Part, penalty: float) -> np.ndarray:
        out = []
        for support, query in zip(part.support, part.query, strict=True):
            x, y = s.x[support].astype(float), s.y[support].astype(float)
            mean = x.mean(0)
            f = x - mean
            dual = np.linalg.solve(f @ f.T + penalty * np.eye(len(f)), y - y.mean())
            out.append(y.mean() + (s.x[query] - mean) @ (f.T @ dual))
        return np.concatenate(out)

    at = s.y[_flat(s.valid.query)]
    penalties = [10.0**p for p in range(-2, 5)]
    return _best((loss_of(s, at, predict(s.valid, p)), predict(s.test, p)) for p in penalties)


def _likelihood(s: Split) -> str:
    return "gaussian" if s.classes is None else "bernoulli_logit"


def _slopes(s: Split) -> list[list[int]]:
    """Which inputs have random slopes in the three mixed models: none, the first, the first two."""
    varies = [
        j for j in range(s.x.shape[1])
        if np.mean([np.ptp(s.x[rows, j]) > 0 for rows in s.train if len(rows) > 1]) > 0.3
    ]  # fmt: skip
    return [[], varies[:1], varies[:2]]


def _random(s: Split, rows: np.ndarray, slopes: list[int]) -> gpb.GPModel:
    more = {}
    if slopes:
        more = {
            "group_rand_coef_data": s.x[rows][:, slopes].astype(float),
            "ind_effect_group_rand_coef": [1] * len(slopes),
        }
    return gpb.GPModel(
        group_data=s.group[rows], likelihood=_likelihood(s), num_parallel_threads=1, **more
    )


def _at(s: Split, rows: np.ndarray, slopes: list[int]) -> dict[str, Any]:
    more = {"group_rand_coef_data_pred": s.x[rows][:, slopes].astype(float)} if slopes else {}
    return {"group_data_pred": s.group[rows]} | more


def _fixed(s: Split) -> Callable[[np.ndarray], np.ndarray]:
    """Intercept and inputs, without the columns that follow from those before them."""
    design = lambda at: np.column_stack([np.ones(len(at)), s.x[at]]).astype(float)
    known = design(_flat(s.train))
    independent = np.abs(np.diag(np.linalg.qr(known)[1])) > 1e-4 * math.sqrt(len(known))
    return lambda at: design(at)[:, independent]


def mixed(s: Split) -> np.ndarray:
    """A linear mixed model, the best of three (and, correlated slopes, of statsmodels')."""
    rows, val, test = _known(s), _flat(s.valid.query), _flat(s.test.query)
    fixed = _fixed(s)

    def each() -> Iterator[tuple[float, np.ndarray]]:
        for slopes in _slopes(s):
            model = _random(s, rows, slopes)
            model.fit(y=s.y[rows].astype(float), X=fixed(rows))
            ask = lambda at, m=model, c=slopes: m.predict(
                X_pred=fixed(at), predict_response=True, **_at(s, at, c)
            )["mu"]
            yield loss_of(s, s.y[val], ask(val)), ask(test)
        if s.classes is None:
            for slopes in _slopes(s)[1:2]:
                yield _statsmodels(s, slopes, fixed)

    return _best(each())


def _statsmodels(s: Split, slopes: list[int], fixed: Any) -> tuple[float, np.ndarray]:
    """Intercept and slopes correlated: variances by statsmodels, then the best predictor."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    rows = _flat(s.train)
    effects = lambda at: np.column_stack([np.ones(len(at)), s.x[at][:, slopes]]).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = MixedLM(s.y[rows], fixed(rows), s.group[rows], effects(rows)).fit()
    beta, cov, noise = np.asarray(found.fe_params), np.asarray(found.cov_re), found.scale

    def predict(part: Part) -> np.ndarray:
        out = []
        for k, q in zip(part.support, part.query, strict=True):
            z, residual = effects(k), s.y[k] - fixed(k) @ beta
            gram = z @ cov @ z.T + noise * np.eye(len(k))
            out.append(fixed(q) @ beta + effects(q) @ cov @ z.T @ np.linalg.solve(gram, residual))
        return np.concatenate(out)

    return loss_of(s, s.y[_flat(s.valid.query)], predict(s.valid)), predict(s.test)


def gpboost(s: Split) -> np.ndarray:
    """GPBoost: trees with random effects, stopped early on the validation groups' query rows."""
    rows, val, test = _known(s), _flat(s.valid.query), _flat(s.test.query)

    def each() -> Iterator[tuple[float, np.ndarray]]:
        for slopes in _slopes(s)[:2]:
            for leaves in (4, 8, 16):
                model = _random(s, rows, slopes)
                model.set_prediction_data(**_at(s, val, slopes))
                settings = {
                    "objective": "regression" if s.classes is None else "binary",
                    "num_leaves": leaves, "learning_rate": RATE, "min_data_in_leaf": 20,
                    "verbose": -1, "num_threads": 1, "seed": 0,
                }  # fmt: skip
                data = gpb.Dataset(s.x[rows].astype(float), s.y[rows].astype(float))
                held = gpb.Dataset(s.x[val].astype(float), s.y[val].astype(float), reference=data)
                trees = gpb.train(
                    params=settings, train_set=data, gp_model=model, num_boost_round=500,
                    valid_sets=held, early_stopping_rounds=20, verbose_eval=False,
                    use_gp_model_for_validation=True,
                )  # fmt: skip
                ask = lambda at, t=trees, c=slopes: t.predict(
                    data=s.x[at].astype(float), pred_latent=False, **_at(s, at, c)
                )["response_mean"]
                yield loss_of(s, s.y[val], ask(val)), ask(test)

    return _best(each())


RIVALS: dict[str, Rival] = {
    "LightGBM, one for all": pooled,
    "LightGBM, group as category": category,
    "ridge per group": per_group,
    "mixed model": mixed,
    "GPBoost": gpboost,
    "LightGBM + support features": with_support,
}
