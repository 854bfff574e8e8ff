"""scikit-learn's way to what `moml train --data` does: the groups of the rows are the tasks."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from moml.data.table.columns import Columns, learn_columns
from moml.data.table.frame import Frame, as_table, columns_of
from moml.errors import MomlError
from moml.tabular.model import TableModel
from moml.tabular.pooled import fit_rows
from moml.tabular.predict import labelled
from moml.tabular.score import unadapted
from moml.tabular.store import TableRun, together
from moml.tabular.tables import adapt_table, predict_table, train_table
from moml.tabular.train import check_missing

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.utils import check_consistent_length, check_random_state, check_X_y
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("estimators need scikit-learn: pip install 'moml[table]'") from error

OWN = "the estimator's own task"  # whose rows are those without groups
# scikit-learn's checks that do not hold, as `check_estimator(..., expected_failed_checks=UNMET)`
UNMET = {
    "check_sample_weight_equivalence_on_dense_data": (
        "rows are drawn at random: one of weight 2 is drawn as often as others and counts twice, "
        "two copies are drawn twice as often; the same on average, not to the digit"
    )
}
ALONE = "fit without groups: one pooled model, the same for all rows; it adapts to nobody"


class _Estimator(BaseEstimator):
    """What both have in common; the parameters are those of `moml train`, with its defaults."""

    run_: TableRun | None  # None: fitted without groups
    columns_: Columns
    pooled_: TableModel

    def __init__(
        self,
        *,
        order: Any = None,
        missing: Any = "impute",
        shots: Any = None,
        hold_out: Any = 0.2,
        refit: Any = True,
        members: Any = 3,
        iterations: Any = None,
        kinds: Any = None,
        model: Any = None,
        random_state: Any = 0,
        progress: Any = False,
    ):  # nothing is checked here: scikit-learn wants that left to `fit`
        self.order = order
        self.missing = missing
        self.shots = shots
        self.hold_out = hold_out
        self.refit = refit
        self.members = members
        self.iterations = iterations
        self.kinds = kinds
        self.model = model
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Any:
        """Learn from rows X [rows, features] and their targets y; groups[i] says whose row i is.

        X is an array of numbers, or a frame with categories and dates among its columns. Without
        groups it is one pooled model, with a warning.
        """
        columns, y = self._read(X, reset=True, y=y)
        y = self._learn_target(y)
        weight = sample_weight
        if weight is not None:
            weight = _check_sample_weight(weight, y, dtype=np.float64, ensure_non_negative=True)
        names = {name: _free(name, columns) for name in ("group", "target", "weight")}
        self._names = [*columns], names
        data = columns | {names["target"]: y}
        data |= {} if weight is None else {names["weight"]: weight}
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        if groups is None:
            warnings.warn(ALONE, UserWarning, stacklevel=2)
        with _told():
            (self._fit_pooled if groups is None else self._fit_groups)(data, groups, int(seed))
        return self

    def _fit_groups(self, data: dict[str, Any], groups: Any, seed: int) -> None:
        columns, names = self._names
        check_consistent_length(data[names["target"]], groups)
        run = train_table(
            data | {names["group"]: _words(groups)},
            task=names["group"],
            target=names["target"],
            order=columns[self.order] if isinstance(self.order, int) else self.order,
            weight=names["weight"] if names["weight"] in data else None,
            classification=isinstance(self, ClassifierMixin),
            missing=self.missing,
            shots=self.shots,
            hold_out=self.hold_out,
            refit=self.refit,
            members=self.members,
            iterations=self.iterations,
            kinds=self.kinds,
            seed=seed,
            model=self.model,
            progress=self.progress,
        )
        self.run_, self.columns_, self.pooled_ = run, run.columns, run.models["pooled"]

    def _fit_pooled(self, data: dict[str, Any], _: None, seed: int) -> None:
        if self.model is not None:
            raise ValueError("a model of your own needs groups: without them nothing would adapt")
        names = self._names[1]
        weight = data.pop(names["weight"], None)
        table, classification = as_table(data), isinstance(self, ClassifierMixin)
        self.columns_ = learn_columns(table, names["target"], classification=classification)
        check_missing(table, self.columns_, self.missing)
        self.run_ = None
        target = self.columns_.target
        self.pooled_ = fit_rows(
            self.columns_.encode(table), target(table), classes=len(target.classes) or None,
            weights=weight, members=self.members, iterations=self.iterations, seed=seed,
            progress=self.progress,
        )  # fmt: skip

    def adapt(self, X: Any, y: Any, groups: Any = None) -> Any:
        """A new estimator that knows these rows too; this one stays as it is.

        Without groups they are rows of one task, and the new estimator predicts for that task
        where it is given no groups. Rows of a task that is known already are taken as later ones.
        """
        check_is_fitted(self)
        if self.run_ is None:
            raise ValueError("nothing adapts: the estimator was fitted without groups")
        data, y = self._read(X, y=y)
        names = self._names[1]
        data |= {names["target"]: self._known_target(y)} | self._tasks(groups, len(y))
        new = copy.copy(self)
        with _told():
            made = adapt_table(self.run_, data)
        new.run_ = made._replace(known=together(self.run_.known, made.known))
        return new

    def _predicted(self, X: Any, groups: Any, interval: float | None = None) -> dict[str, Any]:
        """The columns that predictions have: those of known groups are by their own parameters."""
        check_is_fitted(self)
        data, _ = self._read(X)
        rows = len(next(iter(data.values())))
        with _told():
            if self.run_ is not None:
                data |= self._tasks(groups, rows)
                return predict_table(self.run_, data, interval=interval).columns
            if interval is not None:
                raise ValueError("no interval: that takes tasks to hold out, and fit had no groups")
            x = self.columns_.encode(as_table(data))
            return labelled(self.columns_, unadapted(self.pooled_, x))

    def _read(self, X: Any, reset: bool = False, **target: Any) -> tuple[dict[str, Any], Any]:
        """The columns of X by the names they had in `fit`, and the target y, both checked."""
        if target:
            target["y_numeric"] = isinstance(self, RegressorMixin)
        if isinstance(X, Frame) and hasattr(X, "columns"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            with _told():
                columns = columns_of(X)
            rows = len(next(iter(columns.values()), ()))
            y = check_X_y(np.zeros((rows, 1)), **target)[1] if target else None
        else:
            dtypes, least = [np.float64, np.float32], 2 if reset else 1
            given = validate_data(
                self, X, reset=reset, dtype=dtypes, ensure_all_finite="allow-nan",
                ensure_min_samples=least, **target,
            )  # fmt: skip
            X, y = given if target else (given, None)
            columns = {f"x{i}": column for i, column in enumerate(X.T)}
        if not reset:
            columns = dict(zip(self._names[0], columns.values(), strict=True))
        return columns, y

    def _tasks(self, groups: Any, rows: int) -> dict[str, Any]:
        ids = [OWN] * rows if groups is None else _words(groups)
        return {self._names[1]["group"]: ids}

    def _learn_target(self, y: Any) -> Any:
        return y

    def _known_target(self, y: Any) -> Any:
        return y


class MomlRegressor(RegressorMixin, _Estimator):
    """Numbers, for groups that differ and have few rows each; see `moml train --data`.

    Rows of a group that `fit` or `adapt` has seen are predicted by the group's own parameters,
    others by the model that does best for groups of which nothing is known. After `fit` with groups
    `run_` is a run as `moml.train_table` makes it; its `evaluation` has the scores.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> who, x = np.repeat(np.arange(30), 8), rng.normal(size=(240, 2))
    >>> y = x[:, 0] + rng.normal(size=30)[who]
    >>> mine = MomlRegressor(iterations=200, members=1, kinds=["head"]).fit(x, y, groups=who)
    >>> bool(mine.score(x, y, groups=who) > mine.score(x, y))
    True
    """

    def predict(self, X: Any, groups: Any = None) -> Any:
        """The targets of the rows, in their own unit."""
        return self._predicted(X, groups)["prediction"]

    def predict_interval(self, X: Any, groups: Any = None, *, interval: float = 0.9) -> Any:
        """Bounds [rows, 2] that hold this share of the targets of new groups."""
        made = self._predicted(X, groups, interval)
        return np.column_stack([made["lower"], made["upper"]])

    def score(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> float:
        """R² of the predictions."""
        return r2_score(y, self.predict(X, groups), sample_weight=sample_weight)


class MomlClassifier(ClassifierMixin, _Estimator):
    """Classes, for groups that differ and have few rows each; else as `MomlRegressor`."""

    def predict(self, X: Any, groups: Any = None) -> Any:
        """The most probable class of every row."""
        most = self.predict_proba(X, groups).argmax(axis=1)
        return self.classes_[most]

    def predict_proba(self, X: Any, groups: Any = None) -> Any:
        """The probabilities of the classes, [rows, classes], in the order of `classes_`."""
        made = self._predicted(X, groups)
        return np.column_stack([made[f"probability_{i}"] for i in range(len(self.classes_))])

    def score(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted."""
        return accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight)

    def _learn_target(self, y: Any) -> Any:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]}; at least 2 are needed")
        return codes

    def _known_target(self, y: Any) -> Any:
        new = np.setdiff1d(y, self.classes_)
        if len(new):
            raise ValueError(f"y has the class {new[0]}, which fit has not seen")
        return np.searchsorted(self.classes_, y)


@contextmanager
def _told() -> Iterator[None]:
    """Our refusals as the ValueErrors that scikit-learn's tools expect."""
    try:
        yield
    except MomlError as error:
        raise ValueError(str(error)) from error


def _words(groups: Any) -> Any:
    """Group ids as a column."""
    return groups if isinstance(groups, list) else np.asarray(groups)


def _free(name: str, taken: Any) -> str:
    """A column's name that no other has."""
    while name in taken:
        name += "_"
    return name
