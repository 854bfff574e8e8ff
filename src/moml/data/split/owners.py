"""The rows of each owner, and clients by a column of a table."""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Shaped

from moml.errors import DataError

Rows = list[Int[np.ndarray, " _"]]  # of each client, different sizes


class Column(NamedTuple):
    """The clients of a table's column: their names, in the column's type, and their rows."""

    names: Shaped[np.ndarray, " clients"]
    rows: Rows


def by_column(values: Iterable[object]) -> Column:
    """One client for each value of a table's column [rows], in the order of first appearance.

    Rows that are appended later never change a client's number. Missing values are refused.

    >>> clients = by_column(["york", "bath", "york"])
    >>> clients.names.tolist(), [mine.tolist() for mine in clients.rows]
    (['york', 'bath'], [[0, 2], [1]])
    """
    column = np.asanyarray(values) if hasattr(values, "__array__") else np.fromiter(values, object)
    if column.ndim != 1 or not len(column):
        raise DataError(f"a column of clients must be [rows], and not empty; got {column.shape}")
    missing = np.flatnonzero([_missing(value) for value in column] | np.ma.getmaskarray(column))
    if len(missing):
        raise DataError(
            f"every row must name a client; got {len(missing):,} of {len(column):,} rows without "
            f"a name, the first is row {missing[0]}"
        )
    number: dict[object, int] = {}
    try:
        owner = np.array([number.setdefault(value, len(number)) for value in column])
    except TypeError as error:
        raise DataError(f"a client's name must be a number or a text: {error}") from error
    rows = owned(owner, len(number))
    return Column(column[[mine[0] for mine in rows]], rows)


def owned(owner: Int[np.ndarray, " rows"], owners: int) -> Rows:
    """Each owner's rows, ascending, from each row's owner; rows of -1 are nobody's.

    >>> [rows.tolist() for rows in owned(np.array([1, 0, -1, 1]), 2)]
    [[1], [0, 3]]
    """
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(owners + 1))
    return [order[start:end] for start, end in pairwise(ends)]


def _missing(value: object) -> bool:
    """None, NaN, NaT, an empty text; pandas' NA, which will not be compared."""
    try:
        return (
            value is None or bool(value != value) or (isinstance(value, str) and not value.strip())
        )
    except TypeError:
        return True
