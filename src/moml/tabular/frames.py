"""Frames of other libraries with columns of predictions: polars and pandas as they came."""

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from moml.data.table.arrow import arrow
from moml.data.table.frame import Frame, columns_of
from moml.errors import DataError, MomlWarning
from moml.tabular.predict import Predicted

Run = TypeVar("Run")
More = ParamSpec("More")
Predict = Callable[Concatenate[Run, Any, More], Predicted]


def frames_in_and_out(predict: Predict[Run, More]) -> Callable[Concatenate[Run, Any, More], Any]:
    """The same method, of a frame the frame with the predictions; remarks are then warnings."""

    @wraps(predict)
    def predicted(run: Run, data: Any, *args: More.args, **how: More.kwargs) -> Any:
        if not isinstance(data, Frame):
            return predict(run, data, *args, **how)
        made = predict(run, columns_of(data), *args, **how)
        for remark in made.remarks:
            warnings.warn(remark, MomlWarning, stacklevel=2)
        return extended(data, made.columns)

    return predicted


def extended(frame: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """The frame with further columns: of polars or pandas the same kind, of others one of pyarrow.

    Its own columns, and the index of a pandas frame, stay as they are.

    >>> import polars as pl
    >>> extended(pl.DataFrame({"user": ["a"]}), {"prediction": np.array([0.5])}).columns
    ['user', 'prediction']
    """
    kind = type(frame).__module__.partition(".")[0]
    table = frame if kind in ("polars", "pandas") else arrow().table(frame)
    for name in columns:
        if name in (table.columns if table is frame else table.column_names):
            raise DataError(f"the table has a column {name} already; rename it first")
    if kind == "pandas":
        return table.assign(**columns)
    if kind == "polars":
        import polars

        return table.with_columns([polars.Series(name, some) for name, some in columns.items()])
    for name, some in columns.items():
        table = table.append_column(name, arrow().array(some))
    return table
