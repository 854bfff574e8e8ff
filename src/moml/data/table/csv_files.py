"""CSV in one pass: pyarrow guesses types from the first block, and what it fails on is text first.

The type of a text column is decided by its distinct words. If all are whole numbers, truth values,
dates or numbers, that is its type. If more than half of the cells are numbers (or dates), the
others are mistakes and refused, unless the column has few distinct words and those that are no
numbers are all frequent: 0, 1, 2, 3+. All other columns remain text.
"""

import csv
import io
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from moml.data.table.arrow import Arrow, Chunk, Schema, arrow, cast, chunk_of, unified
from moml.data.table.cells import Cells, guessed
from moml.data.table.limits import COLUMNS, Meter, gathered
from moml.errors import DataError

BLOCK = 1 << 22  # bytes
BLANK = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"]
BLANK += ["<NA>", "<na>"]
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity|nan)$"
DATE = r"^\d{4}-\d\d-\d\d([T ].*)?$"
CLOCK = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"
PLAIN = Cells()
CELL = 40  # characters of a wrong cell that an error shows
FEW = 32  # distinct words of a column that may be categories though most are numbers
OFTEN = 0.01  # of the rows must have each category that is no number, and two rows


class Csv(NamedTuple):
    """A file, the separator between its cells, and the names of all columns."""

    path: Path
    separator: str
    names: tuple[str, ...] = ()


def csv_schema(path: Path) -> tuple[Schema, Csv]:
    """Names, and types as far as the first block shows; how the file is written."""
    pa = arrow()
    with pa.input_stream(str(path), compression="detect") as stream:
        head = stream.read(BLOCK)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} is UTF-16; save the file as UTF-8")
    start = head.decode("utf-8-sig", "replace").lstrip()
    line = next(iter(start[: 1 << 16].splitlines()), "")
    if not line:
        raise DataError(f"{path} is empty")
    file = Csv(path, max(",;\t|", key=re.sub('"[^"]*"', "", line).count))
    try:
        names = next(csv.reader(io.StringIO(start), delimiter=file.separator), [])
    except csv.Error as error:
        raise DataError(f"{path}: the first row must have the columns' names: {error}") from error
    if len(names) > COLUMNS:
        raise DataError(f"{path} must have at most {COLUMNS:,} columns; got more")
    try:
        with _reader(file) as reader:
            schema = reader.schema
    except pa.ArrowInvalid as error:
        raise _named(file, error) from error
    if all(_matches(pa.array(schema.names), NUMBER)):
        raise DataError(f"{path}: the first row must have the columns' names; it has numbers")
    return schema, file._replace(names=tuple(schema.names))


def csv_chunks(
    file: Csv,
    schema: Schema,
    columns: Sequence[str],
    text: frozenset[str],
    meter: Meter,
    cells: Cells,
) -> tuple[dict[str, list[Chunk]], int]:
    """The columns that are asked for, and the number of rows."""
    pa = arrow()
    written = lambda t: pa.types.is_string(t) or pa.types.is_binary(t) or _marked(t, cells)
    as_text = lambda field: field.name in text or written(field.type)
    blank = [*BLANK, *cells.na]
    types = {field.name: texts() if as_text(field) else field.type for field in schema}
    before = meter.used
    while True:
        meter.used = before
        try:
            found, rows = gathered(csv_batches(file, types, columns, blank), columns, text, meter)
            break
        except pa.ArrowInvalid as error:
            column = re.match(r"In CSV column #(\d+)", str(error))
            if not column:
                raise
            types[file.names[int(column[1])]] = texts()  # later rows do not fit the guess
    for name in columns:
        if name not in text and any(chunk.kind == "text" for chunk in found[name]):
            found[name] = decided(f"{file.path}, column {name}", found[name], cells)
    return found, rows


def _marked(type_: Arrow, cells: Cells) -> bool:
    """Whether arrow has read numbers with points that mean something else here."""
    return arrow().types.is_floating(type_) and not cells.pointed


def csv_types(
    file: Csv, columns: Sequence[str], text: frozenset[str], cells: Cells = PLAIN
) -> dict[str, Arrow]:
    """For each column the first type that all its cells can be cast to."""
    pa = arrow()
    types = [pa.null(), *(type_ for type_ in _types() if not _marked(type_, cells))]
    left = {name: [] if name in text else types for name in columns}
    for batch in csv_batches(file, dict.fromkeys(columns, texts()), columns):
        for name, array in zip(columns, batch.columns, strict=True):
            words = pa.compute.utf8_trim_whitespace(array.dictionary)
            left[name] = [type_ for type_ in left[name] if _cast(words, type_) is not None]
    return {name: [*types, pa.string()][0] for name, types in left.items()}


def csv_batches(
    file: Csv, types: dict[str, Arrow], columns: Sequence[str], blank: Sequence[str] = BLANK
) -> Iterator[Arrow]:
    """Record batches with the columns in this order; cells equal to one of `blank` are missing."""
    last = None
    try:
        with _reader(file, types, columns, blank) as reader:
            for batch in reader:
                last = batch if batch.num_rows else last
                yield batch
    except arrow().ArrowInvalid as error:
        raise _named(file, error) from error
    if last is None or not arrow().types.is_dictionary(last.columns[-1].type):
        return
    # a quote that is never closed takes the rest of the file into the last cell of a row
    lines = (last.columns[-1][-1].as_py() or "").splitlines()[1:]
    cells = len(file.names) - 1
    if cells and lines and all(line.count(file.separator) == cells for line in lines):
        said = f"a quote in the last column has no end; it holds the last {len(lines):,} rows"
        raise DataError(f"{file.path}: {said}")


def is_number(words: Arrow) -> Bool[np.ndarray, " words"]:
    """Which of the words look like numbers."""
    return _matches(_trimmed(words), NUMBER)


def texts() -> Arrow:
    """The arrow type of text here."""
    return arrow().dictionary(arrow().int32(), arrow().string())


def _reader(
    file: Csv,
    types: dict[str, Arrow] | None = None,
    columns: Sequence[str] | None = None,
    blank: Sequence[str] = BLANK,
    use_threads: bool = True,
) -> Arrow:
    """A stream of record batches; without types they are guessed from the first block."""
    from pyarrow import csv as arrow_csv

    return arrow_csv.open_csv(
        str(file.path),
        arrow_csv.ReadOptions(block_size=BLOCK, use_threads=use_threads),
        arrow_csv.ParseOptions(delimiter=file.separator, newlines_in_values=True),
        arrow_csv.ConvertOptions(
            column_types=types, include_columns=columns, null_values=blank, strings_can_be_null=True
        ),
    )


def _types() -> list[Arrow]:
    """The types that words may have, in the order of preference."""
    pa = arrow()
    moments = [pa.timestamp("us"), pa.timestamp("us", "UTC")]
    return [pa.int64(), pa.bool_(), *moments, pa.time32("s"), pa.float64()]


def _cast(words: Arrow, type_: Arrow) -> Arrow | None:
    """The words as values of this type; None if they are not all of it."""
    pa = arrow()
    if pa.types.is_null(type_):
        return words if words.null_count == len(words) else None
    if pa.types.is_time(type_):  # arrow casts times in a CSV alone
        if not all(_matches(words.drop_null(), CLOCK)):
            return None
        midnight = pa.compute.binary_join_element_wise("1970-01-01", words, "T")
        return midnight.cast(pa.timestamp("s")).cast(pa.int64()).cast(pa.int32()).cast(type_)
    return cast(words, type_)


def decided(place: str, chunks: list[Chunk], cells: Cells = PLAIN) -> list[Chunk]:
    """The chunks of a text column, cast if all of its words have one type."""
    pa = arrow()
    codes, words = unified(chunks)
    words = _trimmed(words)
    if not cells.plain:
        read, known = cells.numbers(words)
        if (known | words.is_null().to_numpy(False)).all():
            return [chunk_of(_whole(read).take(pa.array(codes, mask=codes < 0)), False)]
    for type_ in (type_ for type_ in _types() if not _marked(type_, cells)):
        values = _cast(words, type_)
        if values is not None:
            return [chunk_of(values.take(pa.array(codes, mask=codes < 0)), False)]
    counts = np.bincount(codes[codes >= 0], minlength=len(words))
    counts[words.is_null().to_numpy(False)] = 0
    numbers, dates = cells.numbers(words)[1], _matches(words, DATE)
    odd = counts[~numbers & (counts > 0)]
    few = np.count_nonzero(counts) <= FEW and len(odd)
    if few and odd.min() >= max(2, OFTEN * counts.sum()):
        return chunks
    for kind, fits in {"number": numbers, "date": dates}.items():
        like, total = int(counts[fits].sum()), int(counts.sum())
        wrong, as_ = int(np.argmax(~fits & (counts > 0))), f"as {like:,} of {total:,} values are"
        if 2 * like <= total:
            continue
        if like == total:  # dates with and without a zone, or no day of the calendar
            moments = [type_ for type_ in _types() if pa.types.is_timestamp(type_)]
            wrong, as_ = max(_first_bad(words, type_) for type_ in moments), "as the others are"
        row, cell = int(np.argmax(codes == wrong)), _short(words[wrong].as_py())
        hint = _read_by(words[wrong : wrong + 1], int(counts[wrong])) if kind == "number" else ""
        raise DataError(f"{place}, row {row + 1:,}: {cell} is not a {kind}, {as_}{hint}")
    return chunks


def _read_by(word: Arrow, times: int) -> str:
    """The option that reads a cell among numbers, or takes it as missing if it is frequent."""
    if (found := guessed(word, np.array([times]))) is not None:
        return f"; {found[0].options} reads it as a number"
    return f"; if it means no value, add --na {word[0].as_py()!r}" if times > 1 else ""


def _whole(values: np.ndarray) -> Arrow:
    """Numbers as whole ones, if all are; NaN is missing."""
    pa, missing = arrow(), np.isnan(values)
    exact = (np.abs(values) < 2.0**53) & (values % 1 == 0) | missing
    if exact.all():
        values = np.where(missing, 0, values).astype(np.int64)
    return pa.array(values, mask=missing)


def _first_bad(words: Arrow, type_: Arrow) -> int:
    """The first word that makes the cast fail, which it does."""
    fails = lambda n: _cast(words[:n], type_) is None
    return bisect_left(range(1, len(words)), True, key=fails)


def _trimmed(words: Arrow) -> Arrow:
    """Words without spaces around them; None for words of spaces alone."""
    compute = arrow().compute
    trimmed = compute.utf8_trim_whitespace(words)
    return compute.if_else(compute.equal(trimmed, ""), None, trimmed)


def _matches(words: Arrow, form: str) -> np.ndarray:
    fits = arrow().compute.match_substring_regex(words, form)
    return fits.fill_null(False).to_numpy(zero_copy_only=False)


def _named(file: Csv, error: Exception) -> Exception:
    """The error of a row whose cells are too many, too few or not UTF-8, found by reading again.

    A parser's error names its row only where arrow reads without threads.
    """
    if "straddling" in str(error):
        return DataError(f"{file.path}: rows must have at most {BLOCK >> 20} MB; does a quote end?")
    column = re.match(r"In CSV column #(\d+).*invalid UTF8", str(error))
    if not column and "CSV conversion error" in str(error):
        return error
    binary, start = dict.fromkeys(file.names, arrow().binary()), 0
    at = int(column[1]) if column else -1
    try:
        with _reader(file, binary, use_threads=False) as reader:
            for batch in reader:
                cells = batch.columns[at].to_pylist() if column else ()
                for row, cell in enumerate(cells, start + 1):
                    if cell is not None and cell.decode(errors="ignore").encode() != cell:
                        place = f"{file.path}, column {file.names[at]}, row {row:,}"
                        return DataError(f"{place}: {cell!r} is not UTF-8; save the file as UTF-8")
                start += batch.num_rows
    except arrow().ArrowInvalid as again:
        found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", str(again), re.S)
        if found:
            number, names, count, line = found.groups()  # the header is row 1
            said = f"{count} instead of {names} cells: {_short(line)}"
            return DataError(f"{file.path}, row {int(number) - 1:,}: {said}")
    return error


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= CELL else cell[:CELL] + "...")
