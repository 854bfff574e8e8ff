"""The target column: a number, standardised, or a class."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int, Int32, Shaped

from moml.data.exact import exact
from moml.data.table.cells import Cells, Known, guessed
from moml.data.table.csv_files import is_number
from moml.data.table.frame import Column, Table, labels
from moml.data.table.inputs import Scale, scale_of
from moml.errors import DataError

CLASSES = 1000  # at most
FEW = 32  # distinct texts that may be classes though they look like numbers
SHOWN = 5  # classes that an error lists
Rows = Int[np.ndarray, " n"] | None
Values = Float32[np.ndarray, " n"] | Int32[np.ndarray, " n"]


class Target(NamedTuple):
    """The target column; `classes`, in the order of their numbers, if it has any."""

    name: str
    kind: str  # in the table: number, text, flag
    scale: Scale = Scale(0.0, 1.0)
    classes: tuple[str, ...] = ()

    def __call__(self, table: Table, rows: Rows = None, *, missing: bool = False) -> Values:
        """The target of all rows, or some: standardised, or the number of its class.

        A missing target is refused; with `missing` it is NaN, or class -1.
        """
        column = table.column(self.name)
        at = np.arange(table.rows) if rows is None else rows
        lacking = at[column.missing[at]]
        if len(lacking) and not missing:
            more = f", nor have {len(lacking) - 1:,} others" if len(lacking) > 1 else ""
            place = table.where(int(lacking[0]), self.name)
            raise DataError(f"{place} has no value{more}; leave rows without a target out")
        if self.classes:
            return self._classes(table, column, at)
        all_numbers(table, self.name, column)
        return self.scale(column.values[at]).astype(np.float32)

    @property
    def labels(self) -> Shaped[np.ndarray, " classes"]:
        """The classes as the table has them: texts, numbers or truth values."""
        if self.kind != "number":
            return (
                np.array(self.classes) == "true" if self.kind == "flag" else np.array(self.classes)
            )
        try:
            return exact(self.name, [int(word) for word in self.classes])
        except ValueError:
            return np.array(self.classes, float)

    def unscale(self, y: Shaped[np.ndarray, "*n"]) -> Shaped[np.ndarray, "*n"]:
        """Standardised targets in the unit of the target."""
        return np.asarray(y, float) * self.scale.std + self.scale.mean

    def _classes(self, table: Table, column: Column, at: Int[np.ndarray, " n"]) -> Values:
        if self.kind == "flag" and column.kind == "number":
            column = column._replace(kind="flag")  # 0 and 1 for false and true
        codes, words = labels(table, self.name, column)
        place = {word: i for i, word in enumerate(self.classes)}
        number = np.array([place.get(word, -2) for word in words] + [-1], np.int32)
        y = number[codes[at]]
        for row in at[y == -2][:1]:
            known = ", ".join(self.classes[:SHOWN]) + (", ..." if self.classes[SHOWN:] else "")
            place_, word = table.where(int(row), self.name), column.word(int(row))
            raise DataError(f"{place_}: {word!r} is none of the classes {known}")
        return y


def learn_target(
    table: Table, name: str, rows: Int[np.ndarray, " n"], classification: bool = False
) -> Target:
    """The target: its scale by these rows, or its classes, which are those of the whole table."""
    column = table.column(name)
    if column.kind == "time":
        raise DataError(f"{table.name}: the target {name} is a date; it must be a number or class")
    if column.kind == "number" and not classification:
        all_numbers(table, name, column)
        scale = scale_of(column.values[rows])
        if not scale.std:
            raise DataError(f"{table.name}: the target {name} has one value in the training tasks")
        return Target(name, "number", scale)
    codes, words = labels(table, name)
    used = np.unique(codes[codes >= 0])
    if column.kind == "text" and len(used) > FEW and not classification:
        found = _number_form(column)
        if found is not None:
            row = int(np.argmax(~column.missing & ~found[1][column.values]))  # 0: all are numbers
            said = f"is a text, no number; {written(column)}, --classification as classes"
            raise table.wrong(name, said, row or None)
    if len(used) < 2:
        raise DataError(f"{table.name}: the target {name} has one class, {words[used[0]]!r}")
    if len(used) > CLASSES:
        many = f"{len(used):,} classes; at most {CLASSES:,}"
        raise DataError(f"{table.name}: the target {name} has {many}")
    order = float if column.kind == "number" else str
    classes = sorted((words[code] for code in used), key=order)
    return Target(name, column.kind, classes=tuple(classes))


def all_numbers(table: Table, name: str, column: Column) -> None:
    """Raise a DataError that names the row, unless all values are finite numbers or missing."""
    if column.kind not in ("number", "flag"):
        raise table.wrong(name, "is not a number")
    for row in np.flatnonzero(np.isinf(column.values))[:1]:
        raise DataError(f"{table.where(int(row), name)}: {column.values[row]} is not finite")


def written(column: Column) -> str | None:
    """Which option reads a column of texts as numbers, if most of them are numbers by one.

    >>> from moml.data.table.frame import as_table
    >>> written(as_table({"price": ["$4.50", "$5.25"]}).column("price"))
    "--units '$' reads 2 of 2 values as numbers"
    >>> written(as_table({"price": ["4.50", "5.25", "?"]}).column("price"))
    "--decimal '.' reads 2 of 3 values as numbers"
    """
    found = _number_form(column)
    if found is None:
        return None
    form, known = found
    of = column.values[~column.missing]
    return f"{form.options} reads {known[of].sum():,} of {len(of):,} values as numbers"


def _number_form(column: Column) -> tuple[Cells, Known] | None:
    """The form that reads most values of a column of texts as numbers, and which words it reads."""
    if column.kind != "text":
        return None
    counts = np.bincount(column.values[~column.missing], minlength=len(column.words))
    form, known = guessed(column.words, counts) or (Cells("."), is_number(column.words))
    return (form, known) if 2 * counts[known].sum() > counts.sum() else None
