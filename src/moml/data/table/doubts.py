"""What in a table may not be meant: a copy of the target, classes as numbers, ids in two spellings.

Each function returns lines for a warning; nothing is changed.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np

from moml.data.table.columns import Columns
from moml.data.table.frame import Column, Table, labels
from moml.data.table.groups import Groups
from moml.data.table.inputs import seconds

LEAST = 10  # rows with both values that show a copy
SAME = 1e-10  # of the target's variance that a copy may leave over: float32 and rounded cells


def doubts(table: Table, columns: Columns, groups: Groups) -> list[str]:
    """All of them, one line each.

    >>> from moml.data.table.columns import learn_columns
    >>> from moml.data.table.groups import group
    >>> from moml.data.table.frame import as_table
    >>> table = as_table({"user": ["ann", "Ann"] * 6, "x": range(12), "y": range(0, 24, 2)})
    >>> columns = learn_columns(table, "y", exclude=["user"], inputs=["x"])
    >>> print("\\n".join(doubts(table, columns, group(table, "user"))))
    column x is a copy of the target: y = 2 x + 0; leave it out by exclude (--exclude x)
    tasks 'ann' and 'Ann' differ in case, spaces or unicode form only; taken as different tasks
    """
    return [*_copies(table, columns), *_two_values(table, columns), *_spellings(groups.ids)]


def _copies(table: Table, columns: Columns) -> list[str]:
    target = table.column(columns.target.name)
    lines = []
    for name in [given.name for given in columns.inputs if given.name in table.columns]:
        copy = _one_to_one if columns.target.classes else _linear
        said = copy(table, name, table.columns[name], columns.target.name, target)
        if said is not None:
            out = f"leave it out by exclude (--exclude {name})"
            lines.append(f"column {name} is a copy of the target: {said}; {out}")
    return lines


def _linear(table: Table, name: str, column: Column, target: str, of: Column) -> str | None:
    """The line on which all rows lie, if they do."""
    if column.kind == "text":
        return None
    x = seconds(column) if column.kind == "time" else np.asarray(column.values, float)
    y = np.asarray(of.values, float)
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    if len(x) < LEAST or not np.ptp(x) or not np.ptp(y):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        cx, cy = x - x.mean(), y - y.mean()
        slope = float(cx @ cy / (cx @ cx))
        left = float(np.mean((cy - slope * cx) ** 2) / np.mean(cy**2))
    if not left < SAME:
        return None
    return f"{target} = {slope:.6g} {name} + {float(y.mean() - slope * x.mean()):.6g}"


def _one_to_one(table: Table, name: str, column: Column, target: str, of: Column) -> str | None:
    """That every value has one class, and every class one value."""
    if column.kind == "time" or (column.kind == "number" and column.values.dtype.kind == "f"):
        return None
    codes, classes = labels(table, name)[0], labels(table, target)[0]
    both = (codes >= 0) & (classes >= 0)
    pairs = len(np.unique(np.stack([codes[both], classes[both]]), axis=1).T)
    values, kinds = (len(np.unique(some[both])) for some in (codes, classes))
    if both.sum() < LEAST or not pairs == values == kinds > 1:
        return None
    return f"each of its {values} values goes with one class"


def _two_values(table: Table, columns: Columns) -> list[str]:
    target = columns.target
    values = table.column(target.name).values
    known = values[~table.column(target.name).missing]
    if target.classes or not np.isin(known, (0, 1)).all():
        return []
    meant = "learned as a number; classification=True (--classification) learns classes"
    return [f"target {target.name} has the values 0 and 1 alone and is {meant}"]


def _spellings(ids: Sequence[str]) -> list[str]:
    first: dict[str, str] = {}
    pairs = [(was, id_) for id_ in ids if (was := first.setdefault(_plain(id_), id_)) != id_]
    if not pairs:
        return []
    more = f" (and {len(pairs) - 1:,} more such pairs)" if len(pairs) > 1 else ""
    both = f"tasks {pairs[0][0]!r} and {pairs[0][1]!r}{more}"
    return [f"{both} differ in case, spaces or unicode form only; taken as different tasks"]


def _plain(id_: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", id_).casefold().split())
