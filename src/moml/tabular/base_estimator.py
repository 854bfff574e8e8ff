"""What the scikit-learn estimators share: arrays and frames as tables, groups as their tasks."""

import copy
import warnings
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_consistent_length, check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from moml.data.exact import exact
from moml.data.table.columns import Columns, check_missing, learn_columns
from moml.data.table.frame import Frame, as_table, columns_of
from moml.errors import MomlError, MomlWarning
from moml.tabular.fitting.fit import fit_rows
from moml.tabular.model import TableModel
from moml.tabular.predict import labelled
from moml.tabular.run import TableRun
from moml.tabular.train import train_table
from moml.types import Record

NO_GROUP = "no group"  # the task of rows without groups
POOLED = "fit without groups: one pooled model for all rows, which does not adapt"
Estimator = TypeVar("Estimator", bound="TableEstimator")


class TableEstimator(BaseEstimator):
    """What both estimators share; the parameters are those of `moml.train_table`."""

    run_: TableRun | None  # None: fitted without groups
    columns_: Columns
    pooled_: TableModel

    def __init__(
        self,
        *,
        order: Any = None,
        missing: Any = "impute",
        shots: Any = None,
        hold_out: Any = None,
        refit: Any = True,
        members: Any = 3,
        iterations: Any = None,
        kinds: Any = None,
        model: Any = None,
        random_state: Any = 0,
        progress: Any = False,
    ):  # scikit-learn leaves all checks to `fit`, and that of arrays to its own functions
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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(
        self: Estimator, X: object, y: object, groups: object = None, sample_weight: object = None
    ) -> Estimator:
        """Train on rows X [rows, features] and targets y; groups[i] is the group of row i.

        X is an array of numbers, or a frame with categories and dates among its columns. Without
        groups one pooled model is trained, with a warning.
        """
        columns, given = self._read(X, reset=True, y=y)
        target = self._learn_target(given)
        names = {name: _unused(name, columns) for name in ("group", "target", "weight")}
        self._names = [*columns], names
        data = columns | {names["target"]: target}
        if sample_weight is not None:
            data[names["weight"]] = _check_sample_weight(
                sample_weight, target, dtype=np.float64, ensure_non_negative=True
            )
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        with _value_errors():
            if groups is None:
                warnings.warn(POOLED, UserWarning, stacklevel=2)
                self._fit_pooled(data, int(seed))
            else:
                check_consistent_length(target, groups)
                self._fit_groups(data | {names["group"]: _ids(groups)}, int(seed))
        return self

    def _fit_groups(self, data: Record, seed: int) -> None:
        columns, names = self._names
        options = self.get_params(deep=False) | {"seed": seed}
        del options["random_state"]
        options["order"] = _column(self.order, columns)
        weight = names["weight"] if names["weight"] in data else None
        options |= {"task": names["group"], "target": names["target"], "weight": weight}
        with warnings.catch_warnings():  # a regressor of 0 and 1 is meant as such
            warnings.filterwarnings("ignore", "target .* 0 and 1 alone", MomlWarning)
            classes = isinstance(self, ClassifierMixin)
            self.run_ = train_table(data, classification=classes, **options)
        self.columns_, self.pooled_ = self.run_.columns, self.run_.models["pooled"]

    def _fit_pooled(self, data: Record, seed: int) -> None:
        if self.model is not None:
            raise ValueError("model needs groups: without groups nothing adapts")
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

    def adapt(self: Estimator, X: object, y: object, groups: object = None) -> Estimator:
        """A new estimator that has also adapted to these rows; this one does not change.

        Without groups they are rows of one task, for which the new estimator predicts where it is
        given no groups. Rows of a known task are taken as its later rows.
        """
        check_is_fitted(self)
        if self.run_ is None:
            raise ValueError("adapt needs an estimator that was fitted with groups")
        data, given = self._read(X, y=y)
        target = {self._names[1]["target"]: self._known_target(given)}
        data |= target | self._tasks(groups, len(given))
        new = copy.copy(self)
        with _value_errors():
            made = self.run_.adapt(data)
        new.run_ = replace(made, tasks=self.run_.tasks.merge(made.tasks))
        return new

    def _predicted(self, X: object, groups: object, interval: float | None = None) -> Record:
        """The columns of predictions."""
        check_is_fitted(self)
        data, _ = self._read(X)
        rows = len(next(iter(data.values())))
        with _value_errors():
            if self.run_ is not None:
                data |= self._tasks(groups, rows)
                return self.run_.predict(data, interval=interval).columns
            if interval is not None:
                raise ValueError("an interval needs an estimator that was fitted with groups")
            x = self.columns_.encode(as_table(data))
            return labelled(self.columns_.target, self.pooled_.unadapted(x))

    def _read(self, X: object, reset: bool = False, **target: object) -> tuple[Record, np.ndarray]:
        """The checked columns of X by the names they had in `fit`, and the checked target y."""
        if target:
            if isinstance(target["y"], list) and all(type(value) is int for value in target["y"]):
                with _value_errors():
                    target["y"] = exact("y", target["y"])
            target["y_numeric"] = isinstance(self, RegressorMixin)
        if isinstance(X, Frame) and hasattr(X, "columns"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            with _value_errors():
                columns = columns_of(X)
            rows = len(next(iter(columns.values()), ()))
            y = check_X_y(np.zeros((rows, 1)), **target)[1] if target else np.zeros(0)
        else:
            dtypes, least = [np.float64, np.float32], 2 if reset else 1
            given = validate_data(
                self, X, reset=reset, dtype=dtypes, ensure_all_finite="allow-nan",
                ensure_min_samples=least, **target,
            )  # fmt: skip
            x, y = given if target else (given, np.zeros(0))
            columns = {f"x{i}": column for i, column in enumerate(x.T)}
        if not reset:
            columns = dict(zip(self._names[0], columns.values(), strict=True))
        return columns, y

    def _tasks(self, groups: object, rows: int) -> Record:
        ids = [NO_GROUP] * rows if groups is None else _ids(groups)
        if len(ids) != rows:
            raise ValueError(f"groups must have an id for each of {rows:,} rows; got {len(ids):,}")
        return {self._names[1]["group"]: ids}

    def _learn_target(self, y: np.ndarray) -> np.ndarray:
        """The target to train on."""
        raise NotImplementedError

    def _known_target(self, y: np.ndarray) -> np.ndarray:
        """The target to adapt to."""
        raise NotImplementedError


@contextmanager
def _value_errors() -> Iterator[None]:
    """Raise our errors as ValueErrors, as scikit-learn's tools expect."""
    try:
        yield
    except MomlError as error:
        raise ValueError(str(error)) from error


def _column(order: Any, columns: Sequence[str]) -> Any:
    """The name of the column that is given by its name or number."""
    if not isinstance(order, int | np.integer):
        return order
    if not -len(columns) <= order < len(columns):
        raise ValueError(f"order must be one of the {len(columns)} columns of X; got {order}")
    return columns[int(order)]


def _ids(groups: object) -> list[object] | np.ndarray:
    """Group ids as a column."""
    return groups if isinstance(groups, list) else np.asarray(groups)


def _unused(name: str, taken: Container[str]) -> str:
    """A column name that is not taken."""
    while name in taken:
        name += "_"
    return name
