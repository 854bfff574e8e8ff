"""The scikit-learn estimators, where users import them from, and how to score personalisation.

The estimators are in `moml.tabular.estimator`. `KnownRows` works with any estimator that has the
methods `adapt(X, y, groups)` and `predict(X, groups)`.
"""

import copy
from collections.abc import Iterator
from functools import wraps
from typing import Any

import numpy as np
from jaxtyping import Int

from moml.errors import check_count
from moml.tabular.estimator import UNMET, MomlClassifier, MomlRegressor

try:
    from sklearn.base import BaseEstimator
    from sklearn.metrics import check_scoring
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import Pipeline
    from sklearn.utils import _safe_indexing, check_consistent_length
    from sklearn.utils.metadata_routing import MetadataRequest
except ImportError as error:
    raise ImportError("estimators need scikit-learn: pip install 'moml[table]'") from error

__all__ = ["UNMET", "KnownRows", "MomlClassifier", "MomlRegressor"]


class KnownRows(BaseEstimator):
    """Splitter and scorer: every test group has its first k rows known, the others are scored.

    As `cv` it splits by groups, so that no test group is in the training rows. As `scoring` it
    adapts the fitted estimator to the first k rows of each test group, and scores its predictions
    of the rows from `after` on; of a pipeline that is its last step. Groups come by metadata
    routing, which both ask for. The rows of a group are in the order of the estimator's `order`
    column, or as they are given.

    Parameters
    ----------
    k
        Known rows of each test group, from 0.
    after
        First rows of each group that are not scored; k by default. With one `after` for several k
        all of them score the same rows. A group of `after` rows or fewer is not scored.
    scoring
        Name of a score, or a scorer, as scikit-learn takes it; by default the estimator's own.
    cv
        Splitter by groups; GroupKFold(5) by default.

    Examples
    --------
    >>> import sklearn
    >>> from sklearn.model_selection import cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> who, x = np.repeat(np.arange(30), 8), rng.normal(size=(240, 2))
    >>> y = x[:, 0] + 3 * rng.normal(size=30)[who]
    >>> small = {"iterations": 50, "members": 1, "kinds": ["head"], "refit": False}
    >>> folds = KnownRows(4, cv=GroupKFold(2))
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     model = MomlRegressor(**small).set_fit_request(groups=True)
    ...     scores = [
    ...         cross_val_score(model, x, y, params={"groups": who}, cv=folds, scoring=known)
    ...         for known in (KnownRows(4), KnownRows(0, after=4))
    ...     ]
    >>> bool(scores[0].mean() > scores[1].mean())
    True
    """

    def __init__(self, k: Any, *, after: Any = None, scoring: Any = None, cv: Any = None):
        self.k = k
        self.after = after
        self.scoring = scoring
        self.cv = cv

    def get_metadata_routing(self) -> MetadataRequest:
        """That the split and the score take groups."""
        request = MetadataRequest(owner=self)
        request.split.add_request(param="groups", alias=True)
        request.score.add_request(param="groups", alias=True)
        return request

    def split(
        self, X: object, y: object = None, groups: object = None
    ) -> Iterator[tuple[Int[np.ndarray, " train"], Int[np.ndarray, " test"]]]:
        """Row numbers of the training and the test groups, fold by fold."""
        self._counts()
        return self._cv().split(X, y, groups)

    def get_n_splits(self, X: object = None, y: object = None, groups: object = None) -> int:
        """The number of folds."""
        return self._cv().get_n_splits(X, y, groups)

    def __call__(self, estimator: Any, X: object, y: object, groups: object = None) -> float:
        """The score of a fitted estimator on groups that it has not seen."""
        k, after = self._counts()
        if groups is None:
            raise ValueError("KnownRows needs groups; pass params={'groups': ...} with routing")
        check_consistent_length(X, y, groups)
        if isinstance(estimator, Pipeline):
            X, estimator = estimator[:-1].transform(X), estimator[-1]
        owner = np.unique(np.asarray(groups), return_inverse=True)[1]
        place = _place(owner, _order(estimator, X))
        known, asked = np.flatnonzero(place < k), np.flatnonzero(place >= after)
        known = known[np.lexsort((place[known], owner[known]))]  # a group's rows in their order
        if not len(asked):
            most = int(np.bincount(owner).max())
            raise ValueError(f"some group must have more than {after} rows; the largest has {most}")
        part = lambda values, rows: _safe_indexing(values, rows)
        if len(known):
            estimator = estimator.adapt(part(X, known), part(y, known), part(groups, known))
        mine, of = copy.copy(estimator), part(groups, asked)
        for method in ("predict", "predict_proba"):
            if hasattr(estimator, method):
                setattr(mine, method, _of_groups(getattr(estimator, method), of))
        return check_scoring(mine, scoring=self.scoring)(mine, part(X, asked), part(y, asked))

    def _cv(self) -> Any:
        return GroupKFold(5) if self.cv is None else self.cv

    def _counts(self) -> tuple[int, int]:
        k = check_count("k", self.k, least=0)
        return k, k if self.after is None else check_count("after", self.after, least=k)


def _of_groups(predict: Any, groups: object) -> Any:
    """The method of rows whose groups are known."""

    @wraps(predict)  # scorers ask for its name
    def of_rows(X: object, *_: object) -> np.ndarray:
        return predict(X, groups)

    return of_rows


def _order(estimator: Any, X: Any) -> np.ndarray | None:
    """The column by which an estimator sorts the rows of a group."""
    name = getattr(estimator, "order", None)
    return None if name is None else np.asarray(_safe_indexing(X, name, axis=1)).ravel()


def _place(owner: Int[np.ndarray, " rows"], by: np.ndarray | None) -> Int[np.ndarray, " rows"]:
    """The place of every row among those of its group.

    >>> _place(np.array([1, 0, 1, 1]), np.array([3, 1, 2, 3])).tolist()
    [1, 0, 0, 2]
    """
    rows = np.lexsort([owner] if by is None else [by, owner])
    start = np.concatenate([[0], np.cumsum(np.bincount(owner))])
    place = np.empty(len(owner), int)
    place[rows] = np.arange(len(owner)) - start[owner[rows]]
    return place
