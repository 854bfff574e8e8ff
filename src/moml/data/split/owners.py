"""Rows by their owner, and owners by a column of a table."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Shaped

from moml.errors import DataError

Rows = list[Int[np.ndarray, " _"]]  # of each client, different sizes


class Column(NamedTuple):
    """The clients of a table's column: their names, in the column's own type, and their rows."""

    names: Shaped[np.ndarray, " clients"]
    rows: Rows


def by_column(values: Any) -> Column:
    """One client for each value of a table's column [rows], in the order of first appearance.

    So rows that are appended later never change a client's number. Missing values are refused.

    >>> clients = by_column(["york", "bath", "york"])
    >>> clients.names.tolist(), [mine.tolist() for mine in clients.rows]
    (['york', 'bath'], [[0, 2], [1]])
    """
    column = np.asanyarray(values) if hasattr(values, "__array__") else np.fromiter(values, object)
    if column.ndim != 1 or not len(column):
        raise DataError(f"a column of clients must be [rows], and not empty; given {column.shape}")
    missing = np.flatnonzero([_missing(value) for value in column] | np.ma.getmaskarray(column))
    if len(missing):
        raise DataError(
            f"{len(missing):,} of {len(column):,} rows name no client, the first is row "
            f"{missing[0]}; leave them out or give them a name"
        )
    number: dict[Any, int] = {}
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


def _missing(value: Any) -> bool:
    """None, NaN, NaT, an empty text; pandas' NA, which will not be compared."""
    try:
        return (
            value is None or bool(value != value) or (isinstance(value, str) and not value.strip())
        )
    except TypeError:
        return True
