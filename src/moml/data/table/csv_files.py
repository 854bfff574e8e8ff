"""CSV by blocks, with types guessed from the first block; `csv_survey` decides where they fail."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from moml.data.table.arrow import arrow
from moml.errors import DataError

BLOCK = 1 << 22  # bytes
BLANK = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"]
BLANK += ["<NA>", "<na>"]
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity|nan)$"
DATE = r"^\d{4}-\d\d-\d\d([T ].*)?$"
FORMS = (NUMBER, DATE)
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
    schema = next(named(path, _first(path, separator)))
    numbers = pa.compute.match_substring_regex(pa.array(schema.names), NUMBER)
    if all(numbers.to_pylist()):
        raise DataError(f"{path}: the first row must have the columns' names; it has numbers")
    return schema, Dialect(separator, len(schema.names))


def _first(path: Path, separator: str) -> Iterator[Any]:
    with reader_of(path, Dialect(separator, 0), use_threads=False) as reader:
        yield reader.schema


def guessed(schema: Any, text: frozenset[str]) -> dict[str, Any]:
    """The type of each column as the first block has it."""
    pa = arrow()
    plain = lambda t: texts() if pa.types.is_string(t) or pa.types.is_binary(t) else t
    return {f.name: texts() if f.name in text else plain(f.type) for f in schema}


def csv_batches(
    path: Path,
    dialect: Dialect,
    types: dict[str, Any],
    columns: Sequence[str],
    raw: bool = False,
) -> Iterator[Any]:
    """Record batches with the columns in this order; raw: only what is not there is missing."""
    pa = arrow()
    with reader_of(path, dialect, types, columns, blank=[""] if raw else BLANK) as reader:
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


def reader_of(
    path: Path,
    dialect: Dialect,
    types: dict[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    blank: Sequence[str] = BLANK,
    **reading: Any,
) -> Any:
    """A stream of record batches; without types they are guessed from the first block."""
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


def texts() -> Any:
    """The arrow type of text here."""
    pa = arrow()
    return pa.dictionary(pa.int32(), pa.string())


def named(path: Path, batches: Iterator[Any]) -> Iterator[Any]:
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
            f"{path}, row {int(row) - 1:,}: {cells} instead of {names} cells: {short(line)}"
        ) from error


def short(cell: str) -> str:
    """A cell as an error shows it."""
    return repr(cell if len(cell) <= CELL else cell[:CELL] + "...")
