"""scikit-learn estimators of table models: the groups of the rows are the tasks."""

import numpy as np

try:
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.utils.multiclass import check_classification_targets
except ImportError as error:
    raise ImportError("estimators need scikit-learn: pip install 'moml[table]'") from error

from moml.tabular.base_estimator import TableEstimator

# scikit-learn's checks that do not hold, as `check_estimator(..., expected_failed_checks=UNMET)`
UNMET = {
    "check_sample_weight_equivalence_on_dense_data": (
        "rows are drawn at random: a row of weight 2 is drawn as often as others and counts twice, "
        "two copies are drawn twice as often; equal on average, not exactly"
    )
}


class MomlRegressor(RegressorMixin, TableEstimator):
    """Regression for groups that differ and have few rows each; see `moml.train_table`.

    Rows of a group that `fit` or `adapt` has seen are predicted by the group's personal parameters,
    others by the model that is best for groups without known rows. After `fit` with groups `run_`
    is the `TableRun`; its `evaluation` has the scores.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> who, x = np.repeat(np.arange(30), 8), rng.normal(size=(240, 2))
    >>> y = x[:, 0] + rng.normal(size=30)[who]
    >>> mine = MomlRegressor(iterations=200, members=1, kinds=["head"]).fit(x, y, groups=who)
    >>> bool(mine.score(x, y, groups=who) > mine.score(x, y))
    True
    """

    def predict(self, X: object, groups: object = None) -> np.ndarray:
        """The predicted targets of the rows."""
        return self._predicted(X, groups)["prediction"]

    def predict_interval(
        self, X: object, groups: object = None, *, interval: float = 0.9
    ) -> np.ndarray:
        """Bounds [rows, 2] that enclose this share of the targets of new groups."""
        made = self._predicted(X, groups, interval)
        return np.column_stack([made["lower"], made["upper"]])

    def score(
        self, X: object, y: object, groups: object = None, sample_weight: object = None
    ) -> float:
        """R² of the predictions."""
        return r2_score(y, self.predict(X, groups), sample_weight=sample_weight)

    def _learn_target(self, y: np.ndarray) -> np.ndarray:
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y must be numbers, or use MomlClassifier; got {y.dtype}")
        return y.astype(float) if y.dtype.kind == "b" else y

    _known_target = _learn_target


class MomlClassifier(ClassifierMixin, TableEstimator):
    """Classification for groups that differ and have few rows each; see `MomlRegressor`."""

    def predict(self, X: object, groups: object = None) -> np.ndarray:
        """The most probable class of every row."""
        most = self.predict_proba(X, groups).argmax(axis=1)
        return self.classes_[most]

    def predict_proba(self, X: object, groups: object = None) -> np.ndarray:
        """The probabilities of the classes, [rows, classes], in the order of `classes_`."""
        made = self._predicted(X, groups)
        return np.column_stack([made[f"probability_{i}"] for i in range(len(self.classes_))])

    def score(
        self, X: object, y: object, groups: object = None, sample_weight: object = None
    ) -> float:
        """The share of rows whose class is predicted."""
        return accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight)

    def _learn_target(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have 2 classes or more; got one class, {self.classes_[0]}")
        return codes

    def _known_target(self, y: np.ndarray) -> np.ndarray:
        new = np.setdiff1d(y, self.classes_)
        if len(new):
            raise ValueError(f"y has the class {new[0]}, which fit has not seen")
        return np.searchsorted(self.classes_, y)
