"""Rows that come to a trained table: read by its columns, encoded as they were in training."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from moml.data.table.files import errors_named, files_of, format_of, schema_of
from moml.data.table.frame import Frame, Table, as_table, read_table
from moml.data.table.groups import Groups, group, weights
from moml.errors import ConfigError, DataError
from moml.tabular.store import TableRun

# a file, a folder, columns in memory
Source = str | os.PathLike[str] | Table | Mapping[str, Any] | Frame


class Rows(NamedTuple):
    """Rows with targets, by task."""

    groups: Groups
    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None


def read(data: Source, columns: Sequence[str] | None, text: Sequence[str]) -> Table:
    """A table from wherever it is."""
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping | Frame):
        return as_table(data, text)
    return read_table(data, columns=columns, text=text)


def rows_of(
    run: TableRun,
    data: Source,
    *,
    weighted: bool = False,
    say: Callable[[str], None] | None = None,
) -> Rows:
    """The rows of a table that has the target, and the order and weight where the run has them.

    `say` is given lines on what this table has that training had not.
    """
    about, columns = run.about, run.columns
    weight = about["weight"] if weighted else None
    named = [about["task"], about["target"], about["order"], weight]
    wanted = list(dict.fromkeys([*columns.names, *(name for name in named if name)]))
    table = read(data, wanted, [about["task"], *columns.text])
    groups = group(table, about["task"], about["order"])
    weigh = None if weight is None else weights(table, weight)
    for line in columns.remarks(table) if say else ():
        say(line)  # type: ignore[misc]
    return Rows(groups, columns.encode(table), columns.target(table), weigh)


def check_output(
    data: str | os.PathLike[str], out: str | os.PathLike[str], new: Sequence[str]
) -> None:
    """Refuse a table that cannot be written before any work is done for it."""
    format_of(out)
    out = Path(out)
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; give a file for the predictions")
    if out.exists() and out.samefile(data):
        raise ConfigError(f"{out} is the table itself; give another file for the predictions")
    for file in files_of(data):
        with errors_named(file):
            schema, _ = schema_of(file)
        for name in new:
            if name in schema.names:
                raise DataError(f"{file} has a column {name} already; rename it first")
