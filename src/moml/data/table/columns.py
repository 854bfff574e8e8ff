"""The description of a table's columns: learned on training rows, saved with a model as JSON.

`learn_columns` describes the inputs and the target; `Columns.encode` and `Columns.target` turn any
table with these columns into arrays.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from moml.data.table.arrow import MISSING, arrow
from moml.data.table.frame import NOTHING, Column, Table
from moml.data.table.inputs import (
    CYCLES,
    Features,
    Input,
    Scale,
    encode,
    learn,
    outside,
    range_of,
    recoded,
)
from moml.data.table.lists import expanded
from moml.data.table.target import Rows, Target, learn_target, written
from moml.errors import ConfigError, DataError

if TYPE_CHECKING:  # it imports JAX, which reading data does not need
    from moml.types import Record

BLOCK = 1 << 13  # rows encoded at a time, to fit in a processor's cache
SHOWN = 8  # columns in a line
ROWS = 20  # fewer may be consecutive by chance
INDICES = COUNTS, FRAME = "it counts the rows", "it is the index of a pandas frame"
FORMAT = 1  # of the JSON below
DATE = re.compile(r"\d{1,4}([/.])\d{1,2}\1\d{1,4}")
INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an unnamed index in a file
MISSING_INPUTS = ("impute", "refuse")
KINDS = {"number": "number", "time": "date", "text": "text"}  # and their names in errors


class Columns(NamedTuple):
    """Inputs and target; `left_out` says of every other column why it is no input."""

    inputs: tuple[Input, ...]
    target: Target  # a callable: the target of a table's rows
    left_out: dict[str, str]

    @property
    def features(self) -> list[str]:
        """Names of the features, in the order of `encode`."""
        return [name for given in self.inputs for name in given.features]

    @property
    def names(self) -> list[str]:
        """The input columns, which a table to predict must have."""
        return [given.name for given in self.inputs]

    @property
    def text(self) -> list[str]:
        """The columns that `read_table` must read as text, as in training."""
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
        columns = [recoded(given, _fitting(given, table, rows)) for given in self.inputs]
        count = table.rows if rows is None else len(rows)
        x = np.empty((count, len(self.features)), np.float32)
        for first in range(0, count, BLOCK):
            block, i = slice(first, first + BLOCK), 0
            for given, column in zip(self.inputs, columns, strict=True):
                for feature in encode(given, column._replace(values=column.values[block])):
                    x[block, i] = feature
                    i += 1
        return x

    def remarks(self, table: Table) -> list[str]:
        """Values of this table that training had not, and how they are encoded, in lines."""
        found = []
        for given in self.inputs:
            count = outside(given, _fitting(given, table, None))
            if count:
                found.append(f"{given.name} {count:,} ({range_of(given)})")
        more = f" and {len(found) - SHOWN:,} more columns" if found[SHOWN:] else ""
        said = f"rows outside the range of training, of {table.rows:,}, by column"
        return self.unseen(table) + ([f"{said}: {', '.join(found[:SHOWN])}{more}"] if found else [])

    def unseen(self, table: Table) -> list[str]:
        """Missing values and categories that training had not; one line each."""
        lines = []
        for given in self.inputs:
            column = _fitting(given, table, None)
            missing = int(column.missing.sum())
            if missing and not given.indicator:
                taken = "no category" if given.kind == "text" else "the training mean"
                said = f"missing in {missing:,} of {table.rows:,} rows, never in training"
                lines.append(f"column {given.name}: {said}; taken as {taken}")
            if given.kind == "text" and given.words and not (given.other or given.levels):
                count = int((recoded(given, column).values == len(given.words)).sum())
                if count:
                    said = f"a category that training had not in {count:,} of {table.rows:,} rows"
                    lines.append(f"column {given.name}: {said}; taken as none")
        return lines

    def to_json(self) -> "Record":
        """The description as a JSON object."""
        plain = lambda part: part._asdict() | {"scale": part.scale._asdict()}
        inputs, target = [plain(given) for given in self.inputs], plain(self.target)
        return {"format": FORMAT, "inputs": inputs, "target": target, "left_out": self.left_out}

    @classmethod
    def from_json(cls, given: "Record") -> "Columns":
        """The description from a JSON object."""
        if given.get("format") != FORMAT:
            found = given.get("format")
            raise DataError(f"columns must be of format {FORMAT}; got {found!r}")
        inputs = tuple(Input(**_parsed(part)) for part in given["inputs"])
        target = Target(**_parsed(given["target"]))
        if not (all(map(_sound, inputs)) and _sound(target)):
            raise DataError("the description of the columns has values of wrong types")
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
    """Describe the columns by `rows` of the table, those of the training tasks; by default all.

    Inputs are the ones given, or all columns except the target and those in `exclude`, where the
    task and the weight belong; there may be none. A target of texts or truth values has classes;
    one of numbers has if `classification`.
    """
    rows = np.arange(table.rows) if rows is None else rows
    inputs, exclude = (inputs and table.named(inputs)), expanded(exclude, table.columns)
    known, apart = learn_target(table, target, rows, classification), {target, *exclude}
    for name in set(inputs or ()) & apart:
        said = "it is the target, task or weight, or excluded"
        raise DataError(f"column {name} cannot be an input: {said}")
    left_out = {} if inputs else {k: v for k, v in table.left_out.items() if k not in apart}
    found = []
    for name in [name for name in (inputs or table.columns) if name not in apart]:
        column = table.column(name)
        _no_dates(table, name, column)
        index = None if inputs else _index(name, column)
        given, why = (None, index) if index else learn(name, column, rows)
        if given is None:
            hint = written(column)
            left_out[name] = why if hint is None else f"{why}; {hint}"
        else:
            found.append(given)
    if not found and any(why not in INDICES for why in left_out.values()):
        said = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise DataError(f"{table.name}: no input column is left{f' ({said})' if said else ''}")
    return Columns(tuple(found), known, left_out)


def check_missing(table: Table, columns: Columns, missing: str) -> None:
    """Raise for the first missing input, if `missing` is "refuse"."""
    if missing not in MISSING_INPUTS:
        raise ConfigError(f"missing must be one of {', '.join(MISSING_INPUTS)}; got {missing!r}")
    for name in columns.names if missing == "refuse" else ():
        lacking = table.column(name).missing
        if lacking.any():
            more = int(lacking.sum()) - 1
            others = f", nor have {more:,} others" if more else ""
            place = table.where(int(np.argmax(lacking)), name)
            raise DataError(f"{place} has no value{others}; missing values are refused here")


def _index(name: str, column: Column) -> str | None:
    """Why a column is an index, as in tables saved with one; None where it is not."""
    if INDEX.fullmatch(name):
        return FRAME
    values = column.values
    whole = column.kind == "number" and values.dtype.kind in "iu" and len(values) > ROWS
    return COUNTS if whole and (np.diff(values) == 1).all() else None


def _parsed(part: "Record") -> "Record":
    """The fields of a NamedTuple from its JSON."""
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in part.items()}
    return fields | {"scale": Scale(**part["scale"])}


def _sound(part: Input | Target) -> bool:
    """Whether values from JSON are of the right types."""
    if isinstance(part, Target):
        good, words = part.kind in ("number", "text", "flag"), part.classes
    else:
        good, words = part.kind in KINDS and set(part.cycles) <= set(CYCLES), part.words
        good &= all(type(number) in (int, float) for number in part.span)
        good &= len(part.span) in (0, 2) and all(isinstance(word, str) for word in part.levels)
        good &= all(type(number) in (int, float) for number in part.means)
        good &= len(part.means) % max(1, len(part.levels)) == 0
    good &= all(isinstance(word, str) for word in (part.name, *words))
    return good and all(type(number) in (int, float) for number in part.scale)


def _fitting(given: Input, table: Table, rows: Rows) -> Column:
    """The column of an input, which must be of its kind unless it has no value at all."""
    name = given.name
    if table.left_out.get(name) == NOTHING:
        count = table.rows if rows is None else len(rows)
        nothing = arrow().array([], arrow().string())
        return Column(given.kind, np.full(count, MISSING[given.kind]), nothing)
    column = table.column(name)
    kind = "number" if column.kind == "flag" else column.kind
    if kind != given.kind:
        raise table.wrong(name, f"is not a {KINDS[given.kind]}, as all were in training")
    return column if rows is None else column._replace(values=column.values[rows])


def _no_dates(table: Table, name: str, column: Column) -> None:
    """Refuse dates that may have the day or the month first."""
    if column.kind != "text" or not DATE.match(column.word(int(np.argmin(column.missing)))):
        return
    if all(DATE.match(word) for word in column.words.to_pylist() if word.strip()):
        raise table.wrong(name, "looks like a date; dates are read in the form 2024-12-31")
