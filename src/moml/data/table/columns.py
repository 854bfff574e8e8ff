"""What a model knows of a table's columns: learned on training rows, kept with it as JSON.

`learn_columns` describes the inputs and the target; `Columns.encode` and `Columns.target` turn any
table with these columns into arrays by that description.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from moml.data.table.arrow import arrow
from moml.data.table.frame import NOTHING, Column, Table
from moml.data.table.inputs import CYCLES, Features, Input, Scale, encode, learn, recoded
from moml.data.table.target import Rows, Target, learn_target
from moml.errors import DataError

BLOCK = 1 << 13  # rows that are encoded at a time, in a processor's cache
ROWS = 20  # fewer may well be counted by chance
FORMAT = 1  # of the JSON below
DATE = re.compile(r"\d{1,4}([/.])\d{1,2}\1\d{1,4}")
KINDS = {"number": "number", "time": "date", "text": "text"}  # in words


class Columns(NamedTuple):
    """Inputs and target; `left_out` says of every other column why it is no input."""

    inputs: tuple[Input, ...]
    target: Target  # a call gives the target of a table's rows
    left_out: dict[str, str]

    @property
    def features(self) -> list[str]:
        """Names of what `encode` gives, in its order."""
        return [name for given in self.inputs for name in given.features]

    @property
    def names(self) -> list[str]:
        """The input columns, which a table must have to be predicted."""
        return [given.name for given in self.inputs]

    @property
    def text(self) -> list[str]:
        """What `read_table` must take as text, so that it is read as it was in training."""
        texts = [given.name for given in self.inputs if given.kind == "text"]
        return texts + ([self.target.name] if self.target.kind == "text" else [])

    def encode(self, table: Table, rows: Rows = None) -> Features:
        """The features of all rows, or of some; always finite.

        >>> from moml.data.table.frame import as_table
        >>> table = as_table({"x": [1.0, 3.0], "c": ["a", "b"], "y": [0.0, 1.0]})
        >>> columns = learn_columns(table, "y")
        >>> columns.features, columns.encode(table).tolist()
        (['x', 'c=a', 'c=b'], [[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
        """
        fitting = [recoded(given, _fitting(given, table, rows)) for given in self.inputs]
        count = table.rows if rows is None else len(rows)
        x = np.empty((count, len(self.features)), np.float32)
        for first in range(0, count, BLOCK):
            block = slice(first, first + BLOCK)
            features = [
                feature
                for given, column in zip(self.inputs, fitting, strict=True)
                for feature in encode(given, column._replace(values=column.values[block]))
            ]
            for i, feature in enumerate(features):
                x[block, i] = feature
        return x

    def remarks(self, table: Table) -> list[str]:
        """What this table has that training had not, and what becomes of it; one line each."""
        lines = []
        for given in self.inputs:
            column = _fitting(given, table, None)
            missing = int(column.missing.sum())
            if missing and not given.indicator:
                taken = "no category" if given.kind == "text" else "the training mean"
                said = f"missing in {missing:,} of {table.rows:,} rows, never in training"
                lines.append(f"column {given.name}: {said}; taken as {taken}")
            if given.kind == "text" and given.words and not given.other:
                count = int((recoded(given, column).values == len(given.words)).sum())
                if count:
                    said = f"a category that training had not in {count:,} of {table.rows:,} rows"
                    lines.append(f"column {given.name}: {said}; taken as none")
        return lines

    def to_json(self) -> dict[str, Any]:
        """As a dictionary that JSON can hold."""
        plain = lambda part: part._asdict() | {"scale": part.scale._asdict()}
        inputs = [plain(given) for given in self.inputs]
        given = {"inputs": inputs, "target": plain(self.target), "left_out": self.left_out}
        return {"format": FORMAT} | given

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> "Columns":
        """From such a dictionary."""
        found = given.get("format")
        if found != FORMAT:
            raise DataError(f"columns of format {found!r}; this version of moml reads {FORMAT}")
        inputs = tuple(Input(**_parsed(part)) for part in given["inputs"])
        target = Target(**_parsed(given["target"]))
        if not (all(map(_sound, inputs)) and _sound(target)):
            raise DataError("columns of other types than moml writes")
        return cls(inputs, target, dict(given["left_out"]))


def learn_columns(
    table: Table,
    target: str,
    *,
    inputs: Sequence[str] | None = None,
    exclude: Iterable[str] = (),
    rows: Rows = None,
    classification: bool = False,
) -> Columns:
    """The columns by these rows of the table, those of the training tasks; all by default.

    Inputs are all columns but the target and those excluded, which the task and the weight should
    be, or the ones given. Texts and truth values as target mean classes, numbers do if asked for.
    """
    rows = np.arange(table.rows) if rows is None else rows
    known, apart = learn_target(table, target, rows, classification), {target, *exclude}
    for name in set(inputs or ()) & apart:
        raise DataError(f"column {name} cannot be an input: it is the target, task or weight")
    left_out = {} if inputs else {k: v for k, v in table.left_out.items() if k not in apart}
    found = []
    for name in [name for name in (inputs or table.columns) if name not in apart]:
        column = table.column(name)
        _no_dates(table, name, column)
        counting = not inputs and _counts(column)
        given, why = (None, "it counts the rows") if counting else learn(name, column, rows)
        if given is None:
            left_out[name] = why
        else:
            found.append(given)
    if not found:
        said = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise DataError(f"{table.name}: no input column is left{f' ({said})' if said else ''}")
    return Columns(tuple(found), known, left_out)


def _counts(column: Column) -> bool:
    """Whether a column has the numbers of the rows, as tables that were saved with them do."""
    values = column.values
    return (
        column.kind == "number"
        and values.dtype.kind in "iu"
        and len(values) > ROWS
        and bool((np.diff(values) == 1).all())
    )


def _parsed(part: dict[str, Any]) -> dict[str, Any]:
    """The fields of a NamedTuple from its JSON."""
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in part.items()}
    return fields | {"scale": Scale(**part["scale"])}


def _sound(part: Input | Target) -> bool:
    """Whether what came from JSON is of the right types."""
    words = (part.name, *(part.classes if isinstance(part, Target) else part.words))
    known = ("number", "text", "flag") if isinstance(part, Target) else tuple(KINDS)
    cycles = () if isinstance(part, Target) else part.cycles
    return (
        all(isinstance(word, str) for word in words)
        and part.kind in known
        and all(type(number) in (int, float) for number in part.scale)
        and set(cycles) <= set(CYCLES)
    )


def _fitting(given: Input, table: Table, rows: Rows) -> Column:
    """The column of an input, if it is of its kind; one without any value is of every kind."""
    name = given.name
    if table.left_out.get(name) == NOTHING:
        return _missing(given.kind, table.rows if rows is None else len(rows))
    column = table.column(name)
    kind = "number" if column.kind == "flag" else column.kind
    if kind != given.kind:
        row = int(np.argmin(column.missing))
        said = f"{column.word(row)!r} is not a {KINDS[given.kind]}, as all were in training"
        raise DataError(f"{table.where(row, name)}: {said}")
    return column if rows is None else column._replace(values=column.values[rows])


def _missing(kind: str, rows: int) -> Column:
    if kind == "text":
        return Column(kind, np.full(rows, -1, np.int32), arrow().array([], arrow().string()))
    if kind == "time":
        return Column(kind, np.full(rows, "NaT", "M8[us]"))
    return Column(kind, np.full(rows, np.nan, np.float32))


def _no_dates(table: Table, name: str, column: Column) -> None:
    """Dates that may have the day or the month first are not guessed at."""
    if column.kind != "text":
        return
    row = int(np.argmin(column.missing))
    word = column.word(row)
    if DATE.match(word) and all(DATE.match(w) for w in column.words.to_pylist() if w.strip()):
        said = f"{word!r} looks like a date; dates are read in the form 2024-12-31"
        raise DataError(f"{table.where(row, name)}: {said}")
