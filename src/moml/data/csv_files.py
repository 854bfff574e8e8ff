"""CSV by blocks. Types are guessed from the first block; where a later one does not fit, the whole
file is read again, as text, to decide, and to find the row that an error is to name.

A column whose values are all whole numbers, truth values, dates or numbers has that type. If more
than half of them are numbers (or dates) it is a column of numbers with a wrong value in it, which
is refused; but not if the column has few different values and those that are no numbers are all
frequent: 0, 1, 2, 3+. All other columns are text.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from moml.data.arrow import arrow
from moml.errors import DataError

BLOCK = 1 << 22  # bytes
BLANK = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"]
BLANK += ["<NA>", "<na>"]
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity|nan)$"
DATE = r"^\d{4}-\d\d-\d\d([T ].*)?$"
FORMS = (NUMBER, DATE)
CLOCK = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"
FEW = 32  # different values of a column that may be categories though most are numbers
OFTEN = 0.01  # of the rows must have each category that is no number, and two rows
CELL = 40  # characters of a wrong cell that an error shows


class Dialect(NamedTuple):
    """What stands between cells, and how many columns there are."""

    separator: str
    columns: int


def csv_schema(path: Path) -> tuple[Any, Dialect]:
    """Names, and types as far as the first block tells; how the file is written."""
    pa = arrow()
    with pa.input_stream(str(path), compression="detect") as stream:
        head = stream.read(1 << 16)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} is UTF-16; save the file as UTF-8")
    lines = head.decode("utf-8-sig", "replace").splitlines()
    line = next((line for line in lines if line.strip()), "")
    if not line:
        raise DataError(f"{path} is empty")
    separator = max(",;\t|", key=re.sub('"[^"]*"', "", line).count)
    schema = next(_named(path, _first(path, separator)))
    numbers = pa.compute.match_substring_regex(pa.array(schema.names), NUMBER)
    if all(numbers.to_pylist()):
        raise DataError(f"{path}: the first row must have the columns' names; it has numbers")
    return schema, Dialect(separator, len(schema.names))


def _first(path: Path, separator: str) -> Iterator[Any]:
    with _reader(path, Dialect(separator, 0), use_threads=False) as reader:
        yield reader.schema


def guessed(schema: Any, text: frozenset[str]) -> dict[str, Any]:
    """The type of each column as the first block has it."""
    pa = arrow()
    plain = lambda t: _texts() if pa.types.is_string(t) or pa.types.is_binary(t) else t
    return {f.name: _texts() if f.name in text else plain(f.type) for f in schema}


def surveyed(
    path: Path,
    dialect: Dialect,
    columns: Sequence[str],
    text: frozenset[str],
    strict: bool = True,
) -> dict[str, Any]:
    """The types of these columns by all their cells; a wrong cell is refused, or makes a text."""
    seen = {name: _Seen(name, name in text) for name in columns}
    binary = dict.fromkeys(columns, arrow().binary())
    start = 0
    with _reader(path, dialect, binary, columns, use_threads=False) as reader:
        for batch in _named(path, reader):
            for name, array in zip(columns, batch.columns, strict=True):
                seen[name].add(_decoded(path, name, array, start), start)
            start += batch.num_rows
    return {name: column.decided(path, strict) for name, column in seen.items()}


def csv_batches(
    path: Path,
    dialect: Dialect,
    types: dict[str, Any],
    columns: Sequence[str],
    raw: bool = False,
) -> Iterator[Any]:
    """Record batches with the columns in this order; raw: only what is not there is missing."""
    pa = arrow()
    with _reader(path, dialect, types, columns, blank=[""] if raw else BLANK) as reader:
        last = None
        for batch in reader:
            if batch.num_rows:
                last = batch
            yield batch
    if last is not None and pa.types.is_dictionary(last.columns[-1].type):
        _closed(path, dialect, last.columns[-1][-1].as_py())


def _closed(path: Path, dialect: Dialect, cell: str | None) -> None:
    """A quote that is never closed takes the rest of the file into the last cell of a row."""
    lines = (cell or "").splitlines()[1:]
    cells = dialect.columns - 1
    if cells and lines and all(line.count(dialect.separator) == cells for line in lines):
        raise DataError(
            f"{path}: a quote in the last column has no end; it holds the last {len(lines):,} rows"
        )


def _reader(
    path: Path,
    dialect: Dialect,
    types: dict[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    blank: Sequence[str] = BLANK,
    **reading: Any,
) -> Any:
    from pyarrow import csv

    return csv.open_csv(
        str(path),
        csv.ReadOptions(block_size=BLOCK, **reading),
        csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
        csv.ConvertOptions(
            column_types=types,
            include_columns=columns,
            null_values=blank,
            strings_can_be_null=True,
        ),
    )


def doubtful(arrays: Iterable[Any]) -> bool:
    """Whether more than half of a column's texts, dictionary arrays, are numbers or are dates."""
    pa = arrow()
    cells, like = 0, np.zeros(2, int)
    for array in arrays:
        codes = array.indices.drop_null().to_numpy()
        count = np.bincount(codes, minlength=len(array.dictionary))
        words = pa.compute.utf8_trim_whitespace(array.dictionary)
        fits = [pa.compute.match_substring_regex(words, form).to_numpy(False) for form in FORMS]
        cells += len(codes)
        like += [int(count[fit].sum()) for fit in fits]
    return bool((2 * like > cells).any())


class _Seen:
    """What the cells of one column turned out to be."""

    def __init__(self, name: str, text: bool):
        pa = arrow()
        self.name, self.text, self.cells = name, text, 0
        moment = lambda zone: pa.timestamp("us", zone)
        # in the order of preference; what a block does not fit drops out
        self.types = [pa.int64(), pa.bool_(), moment(None), moment("UTC"), pa.time32("s")]
        self.types += [pa.float64()]
        self.like = {"number": 0, "date": 0}
        self.bad: dict[str, tuple[int, str]] = {}  # the first row that is none, and its cell
        self.odd = (0, "")  # the first date that is not of the form of the others
        self.counts: Counter[str] = Counter()  # of its values, as long as they are few

    def add(self, array: Any, start: int) -> None:
        if self.text:
            return
        pa = arrow()
        compute = pa.compute
        cells = compute.utf8_trim_whitespace(array)
        self.cells += len(cells) - cells.null_count
        before, self.types = self.types, [given for given in self.types if _casts(cells, given)]
        moments = [given for given in before if pa.types.is_timestamp(given)]
        if moments and not any(pa.types.is_timestamp(given) for given in self.types):
            at = max(_first_bad(cells, given) for given in moments)
            self.odd = start + at, cells[at].as_py()
        if len(self.counts) <= FEW:
            found = cells.drop_null().value_counts()
            values, counts = found.field("values"), found.field("counts")
            self.counts.update(dict(zip(values.to_pylist(), counts.to_pylist(), strict=True)))
        for kind, pattern in (("number", NUMBER), ("date", DATE)):
            if kind == "number" and pa.float64() in self.types:
                self.like[kind] = self.cells
                continue
            fits = compute.match_substring_regex(cells, pattern)
            self.like[kind] += compute.sum(fits).as_py() or 0
            at = compute.index(fits, False).as_py()
            if at >= 0:
                self.bad.setdefault(kind, (start + at, cells[at].as_py()))

    def _categories(self) -> bool:
        """Whether the few different values are meant: what is no number is no single mistake."""
        odd = [count for word, count in self.counts.items() if not re.match(NUMBER, word)]
        return len(self.counts) <= FEW and min(odd, default=0) >= max(2, OFTEN * self.cells)

    def decided(self, path: Path, strict: bool) -> Any:
        pa = arrow()
        if self.text:
            return _texts()
        if not self.cells:
            return pa.null()
        if self.types:
            return self.types[0]
        if self._categories():
            return _texts()
        for kind, count in self.like.items():
            row, cell = self.bad.get(kind, self.odd)
            if not strict or not cell or 2 * count <= self.cells:
                continue
            as_ = (
                f"as {count:,} of {self.cells:,} values are"
                if kind in self.bad
                else "as the others are"
            )
            place = f"{path}, column {self.name}, row {row + 1:,}"
            raise DataError(f"{place}: {_short(cell)} is not a {kind}, {as_}")
        return _texts()


def _texts() -> Any:
    pa = arrow()
    return pa.dictionary(pa.int32(), pa.string())


def _casts(cells: Any, given: Any) -> bool:
    if arrow().types.is_time(given):  # which arrow knows in a CSV alone
        fits = arrow().compute.match_substring_regex(cells, CLOCK)
        return arrow().compute.all(fits).as_py() is not False
    try:
        cells.cast(given)
        return True
    except arrow().ArrowInvalid:
        return False


def _first_bad(cells: Any, given: Any) -> int:
    """The first cell that makes the cast fail, which it does."""
    return bisect_left(range(1, len(cells)), True, key=lambda n: not _casts(cells[:n], given))


def _decoded(path: Path, name: str, array: Any, start: int) -> Any:
    """Bytes as text, or a DataError that names the row that is none."""
    pa = arrow()
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        for row, cell in enumerate(array.to_pylist()):
            try:
                (cell or b"").decode()
            except UnicodeDecodeError as error:
                place = f"{path}, column {name}, row {start + row + 1:,}"
                raise DataError(
                    f"{place}: {cell!r} is not UTF-8; save the file as UTF-8"
                ) from error
        raise


def _named(path: Path, batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches; a row with too many or too few cells is named.

    Without threads an error of the parser names its row, counting the header.
    """
    try:
        yield from batches
    except arrow().ArrowInvalid as error:
        found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", str(error), re.S)
        if not found:
            raise
        row, names, cells, line = found.groups()
        raise DataError(
            f"{path}, row {int(row) - 1:,}: {cells} instead of {names} cells: {_short(line)}"
        ) from error


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= CELL else cell[:CELL] + "...")
