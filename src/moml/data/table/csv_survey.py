"""The types of a CSV's columns by all of their cells, and the row that an error is to name.

A column whose values are all whole numbers, truth values, dates or numbers has that type. If more
than half of them are numbers (or dates) it is a column of numbers with a wrong value in it, which
is refused; but not if the column has few different values and those that are no numbers are all
frequent: 0, 1, 2, 3+. All other columns are text.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moml.data.table.arrow import arrow
from moml.data.table.csv_files import DATE, NUMBER, Dialect, named, reader_of, short, texts
from moml.errors import DataError

CLOCK = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"
FEW = 32  # different values of a column that may be categories though most are numbers
OFTEN = 0.01  # of the rows must have each category that is no number, and two rows


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
    with reader_of(path, dialect, binary, columns, use_threads=False) as reader:
        for batch in named(path, reader):
            for name, array in zip(columns, batch.columns, strict=True):
                seen[name].add(_decoded(path, name, array, start), start)
            start += batch.num_rows
    return {name: column.decided(path, strict) for name, column in seen.items()}


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
            return texts()
        if not self.cells:
            return pa.null()
        if self.types:
            return self.types[0]
        if self._categories():
            return texts()
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
            raise DataError(f"{place}: {short(cell)} is not a {kind}, {as_}")
        return texts()


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
