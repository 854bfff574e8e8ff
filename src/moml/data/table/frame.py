"""A table in memory: columns as arrays, and the file and row that every value is from.

Files are read by record batches, each converted at once; see `moml.data.table.files`. Rows count
from 1 in messages, from 0 in code.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int, Shaped

from moml.data.exact import exact
from moml.data.table.arrow import (
    INEXACT,
    Arrow,
    Chunk,
    arrow,
    chunk_of,
    inexact,
    joined,
    number_word,
)
from moml.data.table.cells import Cells
from moml.data.table.csv_files import PLAIN
from moml.data.table.files import applied, chunks_of, files_of, no_column
from moml.data.table.limits import Meter
from moml.data.table.lists import expanded, fixed, spread
from moml.errors import DataError

NOTHING = "it has no value at all"
SAME = "all files need the same"
LISTS = "; lists of numbers are inputs where their type has a fixed length"


@runtime_checkable
class Frame(Protocol):
    """A table of another library: pyarrow, pandas, polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as a stream of arrow batches."""


class Column(NamedTuple):
    """One column; how a missing value is written depends on its kind.

    number: floats or whole numbers as they were stored, NaN where missing (then always floats)
    flag: float32, 0 or 1, NaN where missing
    time: datetime64[us], NaT where missing; times with a zone are in UTC
    text: int32 codes, the places of each row's text in `words`, -1 where missing
    """

    kind: str
    values: Shaped[np.ndarray, " rows"]
    words: Arrow = None  # of text: an arrow array of distinct strings

    @property
    def missing(self) -> Bool[np.ndarray, " rows"]:
        """Which rows have no value."""
        if self.kind == "text":
            return self.values < 0
        if self.kind == "time":
            return np.isnat(self.values)
        whole = self.values.dtype.kind in "iu"
        return np.zeros(len(self.values), bool) if whole else np.isnan(self.values)

    def word(self, row: int) -> str:
        """The value of a row as text; empty if it is missing."""
        one = self._replace(values=self.values[row : row + 1])
        return "" if one.missing.any() else _word(self, one.values[0])


class File(NamedTuple):
    """A file of the table, and the rows in the files before it."""

    path: str
    start: int


class Table(NamedTuple):
    """Columns of equal length; `left_out` says of each column that was not read why."""

    columns: dict[str, Column]
    rows: int
    files: tuple[File, ...]
    left_out: dict[str, str]

    def column(self, name: str) -> Column:
        """A column by its name; a DataError says which there are."""
        if name in self.columns:
            return self.columns[name]
        if name in self.left_out:
            raise DataError(f"{self.name}: column {name} cannot be used: {self.left_out[name]}")
        raise no_column(self.name, name, [*self.columns, *self.left_out])

    def named(self, names: Iterable[str]) -> list[str]:
        """The same names, that of a list as those of all its columns; all must be there."""
        found = expanded(names, [*self.columns, *self.left_out])
        for name in found:
            if name not in self.left_out:
                self.column(name)
        return found

    @property
    def name(self) -> str:
        """The file, or the folder of the files."""
        first = self.files[0].path
        return first if len(self.files) == 1 else str(Path(first).parent)

    def where(self, row: int, column: str = "") -> str:
        """The place of a row, as errors name it.

        >>> table = as_table({"age": [31, 45]})
        >>> table.where(1, "age")
        'the table, column age, row 2'
        """
        file = self.files[bisect_right([f.start for f in self.files], row) - 1]
        words = [file.path, f"column {column}" if column else "", f"row {row - file.start + 1:,}"]
        return ", ".join(word for word in words if word)

    def wrong(self, name: str, said: str, row: int | None = None) -> DataError:
        """The error of a column's value in some row, by default in the first that has one."""
        column = self.columns[name]
        row = int(np.argmin(column.missing)) if row is None else row
        return DataError(f"{self.where(row, name)}: {column.word(row)!r} {said}")


def read_table(
    path: str | PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    text: Iterable[str] = (),
    cells: Cells = PLAIN,
) -> Table:
    """A table from a Parquet, CSV, Arrow file, or a folder of such files with the same columns.

    `columns` are read, by default all; those in `text` as texts whatever they look like, as ids.
    A CSV's column is of numbers (dates) if more than half of its values are, and any other value is
    then an error; else it is text. Columns without any value, or of another type than number, text,
    date or truth value, are left out: `Table.column` refuses them. `cells` says how numbers and
    missing values are written; texts of other files than CSV are then read alike.
    """
    as_text, rows = frozenset(text), 0
    parts: dict[str, list[Chunk]] = {}
    kinds: dict[str, tuple[str, Path]] = {}
    read: list[File] = []
    files = files_of(path)
    meter = Meter(files)
    for file in files:
        found, count = chunks_of(file, columns, as_text, meter, cells)
        for name in sorted(set(found) ^ set(parts)) if read else ():
            has, lacks = (file, read[0].path) if name in found else (read[0].path, file)
            raise DataError(f"column {name} is in {has} but not in {lacks}: {SAME}")
        for name, chunks in found.items():
            for kind in {chunk.kind for chunk in chunks} - {"empty"}:
                was, there = kinds.setdefault(name, (kind, file))
                if was != kind:
                    both = f"{was} in {there} but {kind} in {file}"
                    raise DataError(f"column {name} is {both}: {SAME}")
            parts.setdefault(name, []).extend(chunks)
        read.append(File(str(file), rows))
        rows += count
    if not rows:
        raise DataError(f"{path} has no rows")
    return _table(parts, rows, tuple(read), as_text)


def as_table(
    columns: Mapping[str, object] | Frame,
    text: Iterable[str] = (),
    name: str = "the table",
    cells: Cells = PLAIN,
) -> Table:
    """A table from columns in memory: arrays, lists, arrow arrays, or all of a frame.

    An array [rows, d] or a column of lists of d numbers each is d columns: `name[0]`, ...

    >>> table = as_table({"city": ["york", None, "york"], "age": [31.0, 45.0, None]})
    >>> table.columns["city"].values.tolist(), table.columns["age"].missing.tolist()
    ([0, -1, 0], [False, False, True])
    """
    pa, as_text = arrow(), frozenset(text)
    dates = lambda values: isinstance(values, np.ndarray) and values.dtype.kind == "M"
    coarse = lambda values: dates(values) and values.dtype != "M8[ns]"
    known = lambda values: values.astype("M8[us]") if coarse(values) else values

    def as_arrow(key: str, values: Any) -> Arrow:
        if isinstance(values, np.ndarray) and values.ndim == 2:  # an embedding in each row
            return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        try:
            return pa.array(known(values), from_pandas=True)
        except OverflowError:  # integers of Python beyond 64 bits with a sign
            ids = (None if value is None else str(value) for value in values)
            return pa.array(ids if key in as_text else exact(f"column {key}", values))

    try:
        given = columns if isinstance(columns, Mapping) else columns_of(columns)
        arrays = spread({key: fixed(as_arrow(key, values)) for key, values in given.items()})
        parts = {key: [chunk_of(array, key in as_text, key)] for key, array in arrays.items()}
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"{name}: a column must be all numbers, texts or dates: {error}") from error
    rows = {len(array) for array in arrays.values()}
    if len(rows) != 1 or rows == {0}:
        raise DataError(f"{name}: columns must be equally long and not empty; got {sorted(rows)}")
    parts = applied(parts, name, as_text, cells)
    return _table(parts, rows.pop(), (File(name, 0),), as_text)


def columns_of(frame: Frame) -> dict[str, Arrow]:
    """The columns of a frame as arrow arrays; the index of a pandas frame is none of them."""
    frame = frame.reset_index(drop=True) if hasattr(frame, "reset_index") else frame
    try:
        table = arrow().table(frame)
        return {name: table[name].combine_chunks() for name in table.column_names}
    except (arrow().ArrowException, TypeError, ValueError, LookupError) as error:
        said = "; ".join(map(str, reversed(error.args)))
        raise DataError(f"the table cannot be read: {said}") from error


def labels(
    table: Table, name: str, column: Column | None = None
) -> tuple[Int[np.ndarray, " rows"], list[str]]:
    """A column as codes and the words they stand for; -1 where missing. 7.0 is '7'.

    >>> codes, words = labels(as_table({"id": [7.0, 3.5, 7.0]}), "id")
    >>> [words[code] for code in codes]
    ['7', '3.5', '7']
    """
    column = table.column(name) if column is None else column
    if column.kind == "text":
        return column.values, column.words.to_pylist()
    for row in np.flatnonzero(inexact(column.values))[:1]:
        raise table.wrong(name, INEXACT, int(row))
    values, codes = np.unique(column.values, return_inverse=True)
    words = [_word(column, value) for value in values]
    return np.where(column.missing, -1, codes).astype(np.int32), words


def as_categories(table: Table, names: Iterable[str]) -> Table:
    """The table with these columns as texts, where they are not yet.

    >>> made = as_categories(as_table({"zip": [10115, 80331]}), ["zip"])
    >>> made.column("zip").kind, made.column("zip").word(0)
    ('text', '10115')
    """
    changed = {}
    for name in table.named(names):
        if table.column(name).kind != "text":
            codes, words = labels(table, name)
            changed[name] = Column("text", codes, arrow().array(words, arrow().string()))
    return table._replace(columns=table.columns | changed)


def _word(column: Column, value: np.floating | np.integer | np.datetime64) -> str:
    if column.kind == "text":
        return column.words[int(value)].as_py()
    if column.kind == "flag":
        return "true" if value else "false"
    return str(value) if isinstance(value, np.datetime64) else number_word(value)


def _table(
    parts: dict[str, list[Chunk]], rows: int, files: tuple[File, ...], text: frozenset[str]
) -> Table:
    columns: dict[str, Column] = {}
    left_out: dict[str, str] = {}
    for name in list(parts):
        chunks = parts.pop(name)  # so that only one column exists twice at a time
        refused = [chunk.values for chunk in chunks if chunk.kind == "refused"]
        if not name.strip():
            left_out[name] = "it has no name"
        elif refused:
            hint = LISTS if refused[0].startswith(("list<", "large_list<")) else ""
            left_out[name] = f"type {refused[0]} is no number, text, date or truth value{hint}"
        else:
            column = Column(*joined(chunks, dates=name not in text))
            if column.missing.all():
                left_out[name] = NOTHING
            else:
                columns[name] = column
    return Table(columns, rows, files, left_out)
