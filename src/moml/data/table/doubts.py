"""What in a table may not be meant: copies of the target, numbers of rows, ids in two spellings.

Each function returns lines for a warning; nothing is changed.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from jaxtyping import Int

from moml.data.table.columns import Columns
from moml.data.table.frame import Column, Table, labels
from moml.data.table.groups import Groups
from moml.data.table.inputs import seconds

LEAST, ROWS = 10, 20  # rows or tasks that show a copy; rows that show row numbers
DENSE = 2  # numbers from 0 up to so many times the rows, or tasks, may number them
DIFFER = "differ in case, spaces, zeros or unicode form only"
SAME = 1e-10  # of the target's variance that a copy may leave over: float32 and rounded cells
Codes = Int[np.ndarray, " rows"]


def doubts(table: Table, columns: Columns, groups: Groups) -> list[str]:
    """All of them, one line each.

    >>> from moml.data.table.columns import learn_columns
    >>> from moml.data.table.groups import group
    >>> from moml.data.table.frame import as_table
    >>> table = as_table({"user": ["ann", "Ann"] * 6, "x": range(12), "y": range(0, 24, 2)})
    >>> columns = learn_columns(table, "y", exclude=["user"], inputs=["x"])
    >>> print("\\n".join(doubts(table, columns, group(table, "user"))))
    column x is a copy of the target: y = 2 x; leave it out by exclude (--exclude x)
    tasks 'ann' and 'Ann' differ in case, spaces, zeros or unicode form only; taken as different
    """
    inputs = [given.name for given in columns.inputs if given.name in table.columns]
    return [
        *_copies(table, columns),
        *_numbering(table, inputs, groups),
        *_two_values(table, columns),
        *_spellings(groups.ids),
    ]


def respelled(ids: Iterable[str], known: Collection[str]) -> list[str]:
    """A line on ids that differ from known ones in spelling only.

    >>> respelled(["7.0", "3", "eve"], {"7": 0, "3": 1})
    ["task '7.0' is new, but '7' is known: they differ in case, spaces, zeros or unicode form only"]
    """
    new = [id_ for id_ in ids if id_ not in known]
    plain = {_plain(id_): id_ for id_ in known} if new else {}
    pairs = [(id_, plain[_plain(id_)]) for id_ in new if _plain(id_) in plain]
    return [
        f"task {id_!r} is new, but {old!r} is known{_more(pairs)}: they {DIFFER}"
        for id_, old in pairs[:1]
    ]


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
    return f"{target} = {_line(slope, name, float(y.mean() - slope * x.mean()), np.abs(y).max())}"


def _line(slope: float, name: str, level: float, largest: float) -> str:
    """A line as a formula; a level that is rounding of the largest value is left out.

    >>> _line(1.0, "x", 0.0, 5.0), _line(0.5, "x", -3.0, 5.0)
    ('x', '0.5 x - 3')
    """
    times = "" if f"{slope:.6g}" == "1" else f"{slope:.6g} "
    if abs(level) <= 1e-9 * largest:
        return f"{times}{name}"
    return f"{times}{name} {'-' if level < 0 else '+'} {abs(level):.6g}"


def _one_to_one(table: Table, name: str, column: Column, target: str, of: Column) -> str | None:
    """That every value has one class, and every class one value."""
    if column.kind == "time" or (column.kind == "number" and column.values.dtype.kind == "f"):
        return None
    values = _paired(labels(table, name)[0], labels(table, target)[0])
    return None if values is None else f"each of its {values} values goes with one class"


def _paired(codes: Codes, others: Codes) -> int | None:
    """How many codes there are, if each always goes with the same one of the others."""
    both = (codes >= 0) & (others >= 0)
    codes, others = codes[both].astype(np.int64), others[both]
    values, kinds = len(np.unique(codes)), len(np.unique(others))
    if len(codes) < LEAST or not values == kinds > 1:
        return None
    pairs = len(np.unique(codes * (int(others.max()) + 1) + others))
    return values if pairs == values else None


def _numbering(table: Table, inputs: Iterable[str], groups: Groups) -> list[str]:
    """Inputs that number the rows, or the tasks."""
    tasks, lines = len(groups.ids), []
    for name in inputs:
        column, said, wide = table.columns[name], None, 0
        values = column.values
        if column.kind == "number" and values.dtype.kind in "iu":
            wide = int(values.max()) - int(values.min())
            rises = table.rows >= ROWS and (values[1:] > values[:-1]).all()
            if rises and wide < DENSE * table.rows:
                said = "rises from row to row, as row numbers do"
        elif column.kind != "text":
            continue
        few = tasks < LEAST or wide >= DENSE * tasks
        if said is None and not few and _names_tasks(values, groups):
            said = "has one value in each task and no two tasks share one, as with an id"
        if said is not None:
            lines.append(f"column {name} {said}; if so, leave it out by exclude (--exclude {name})")
    return lines


def _names_tasks(values: Codes, groups: Groups) -> bool:
    """Whether every task has one value, another than all others."""
    of_task, first = values[groups.order], groups.start[:-1]
    new = np.flatnonzero(of_task[1:] != of_task[:-1]) + 1  # where a value ends
    one_each = np.isin(new, first).all()
    return bool(one_each and len(np.unique(of_task[first])) == len(first))


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
    both = f"tasks {pairs[0][0]!r} and {pairs[0][1]!r}{_more(pairs)}"
    return [f"{both} {DIFFER}; taken as different"]


def _more(pairs: Sequence[tuple[str, str]]) -> str:
    return f" (and {len(pairs) - 1:,} more such pairs)" if len(pairs) > 1 else ""


def _plain(id_: str) -> str:
    """An id without what spellings differ in.

    >>> _plain(" Ann  B"), _plain("007"), _plain("7.0"), _plain("1.50")
    ('ann b', '7', '7', '1.50')
    """
    word = " ".join(unicodedata.normalize("NFKC", id_).casefold().split())
    number = re.fullmatch(r"0*(\d+?)(\.0+)?", word)
    return number[1] if number else word
