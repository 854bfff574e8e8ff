"""Write tables: new columns, alone or beside all those of a table file.

A file is written under a temporary name, and renamed when it is complete.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from moml.atomic import atomic_write
from moml.data.table.arrow import Arrow, Schema, arrow
from moml.data.table.cells import Cells
from moml.data.table.csv_files import BLANK, NUMBER, PLAIN, Csv, csv_batches, csv_types
from moml.data.table.files import ROWS, batches, errors_named, files_of, format_of, schema_of
from moml.data.table.limits import Meter
from moml.errors import DataError, MomlWarning, reason

FORMULA = r"^[=+\-@\t\r]"  # the start of a cell that Excel, LibreOffice and others compute
Write = Callable[[Arrow], None]  # of a record batch


def write_table(
    columns: Mapping[str, object], path: str | PathLike[str], *, safe: bool = False
) -> None:
    """Columns (arrays, lists, arrow arrays of one length) to a Parquet, CSV or Arrow file.

    Texts that a spreadsheet takes as formulas, such as =1+1, get a ' before them in a CSV if
    `safe`; else they are a warning.
    """
    table = _arrow_table(columns)
    with _writer(path, table.schema, safe) as write:
        for batch in table.to_batches(ROWS):
            write(batch)


def extend_table(
    source: str | PathLike[str],
    columns: Mapping[str, object],
    path: str | PathLike[str],
    text: Iterable[str] = (),
    *,
    safe: bool = False,
    cells: Cells = PLAIN,
) -> None:
    """Write all rows and columns of the table at `source`, in their order, and further columns.

    The source is streamed, and none of its values is changed: from CSV to CSV its text is copied.
    From CSV to another format columns get the types of all their values, those in `text` none;
    where `cells` gives 1.5 another meaning, such columns are texts. For `safe` see `write_table`.
    """
    pa, more, plain = arrow(), _arrow_table(columns), format_of(path) == "csv"
    opened = [(file, *_typed(file, plain, frozenset(text), cells)) for file in files_of(source)]
    for name in more.column_names:
        if any(name in schema.names for _, schema, _ in opened):
            raise DataError(f"{source} has a column {name} already; rename it first")
    try:
        schema = pa.unify_schemas([schema for _, schema, _ in opened], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"{source}: files of different columns: {error}") from error
    for field in more.schema:
        schema = schema.append(field)
    row, meter = 0, Meter(files_of(source))
    with _writer(path, schema, safe) as write:
        for file, given, csv in opened:
            for batch in _rows(file, given, csv, plain, meter):
                n, beside = batch.num_rows, more.slice(row, batch.num_rows)
                row += n
                if len(beside) < n:
                    break
                arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
                arrays |= {name: beside[name].combine_chunks() for name in beside.column_names}
                full = [
                    arrays[f.name].cast(f.type) if f.name in arrays else pa.nulls(n, f.type)
                    for f in schema
                ]
                write(pa.RecordBatch.from_arrays(full, schema=schema))
        if row != len(more):
            raise DataError(f"{source} must have as many rows as its new columns, {len(more):,}")


def extend_frame(frame: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """The frame with further columns: of polars or pandas the same kind, of others one of pyarrow.

    Its own columns, and the index of a pandas frame, stay as they are.

    >>> import polars as pl
    >>> extend_frame(pl.DataFrame({"user": ["a"]}), {"prediction": np.array([0.5])}).columns
    ['user', 'prediction']
    """
    kind = type(frame).__module__.partition(".")[0]
    table = frame if kind in ("polars", "pandas") else arrow().table(frame)
    for name in columns:
        if name in (table.columns if table is frame else table.column_names):
            raise DataError(f"the table has a column {name} already; rename it first")
    if kind == "pandas":
        return table.assign(**columns)
    if kind == "polars":
        import polars

        return table.with_columns([polars.Series(name, some) for name, some in columns.items()])
    for name, some in columns.items():
        table = table.append_column(name, arrow().array(some))
    return table


def _typed(
    file: Path, plain: bool, text: frozenset[str], cells: Cells
) -> tuple[Schema, Csv | None]:
    """The columns of a file as they are written, and how a CSV is."""
    pa = arrow()
    with errors_named(file):
        schema, csv = schema_of(file)
        if csv is not None:
            plainly = dict.fromkeys(schema.names, pa.string())
            schema = pa.schema(plainly if plain else csv_types(csv, schema.names, text, cells))
        return schema, csv


def _rows(
    file: Path, schema: Schema, csv: Csv | None, plain: bool, meter: Meter
) -> Iterator[Arrow]:
    with errors_named(file):
        if csv is None:
            yield from batches(file, schema, schema.names, meter)
        else:
            types = dict(zip(schema.names, schema.types, strict=True))
            yield from csv_batches(csv, types, schema.names, [""] if plain else BLANK)


def _arrow_table(columns: Mapping[str, object]) -> Arrow:
    pa = arrow()
    try:
        return pa.table({name: pa.array(values) for name, values in columns.items()})
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"columns must be equally long, each of one type: {error}") from error


@contextmanager
def _writer(path: str | PathLike[str], schema: Schema, safe: bool) -> Iterator[Write]:
    """A function that writes record batches; the file is renamed when all are written."""
    pa, place, kind = arrow(), Path(path), format_of(path)
    formulas: list[str] = []
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        compression = "gzip" if place.name.lower().endswith(".gz") else None
        with (
            atomic_write(place) as file,
            open(os.dup(file.fileno()), "wb") as closed,  # by arrow
            pa.output_stream(closed, compression=compression) as sink,
        ):
            if kind == "csv":
                tabs = place.name.lower().endswith((".tsv", ".tsv.gz"))
                yield _csv_writer(sink, schema, "\t" if tabs else ",", safe, formulas)
            else:
                from pyarrow import parquet

                make = parquet.ParquetWriter if kind == "parquet" else pa.ipc.new_file
                with make(sink, schema) as writer:
                    yield writer.write_batch
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be written: {reason(error)}") from error
    if formulas and not safe:
        said = (
            f"{path} has cells that a spreadsheet takes as formulas, such as {formulas[0][:40]!r}"
        )
        warnings.warn(f"{said}; safe=True (--safe) makes them texts", MomlWarning, stacklevel=3)


def _csv_writer(
    sink: Arrow, schema: Schema, separator: str, safe: bool, formulas: list[str]
) -> Write:
    """CSV with quotes around the cells that need them; arrow's writer quotes every text.

    The first text of each batch that a spreadsheet would take as a formula goes to `formulas`.
    """
    pa = arrow()
    compute = pa.compute

    def defused(texts: Arrow) -> Arrow:
        starts = compute.match_substring_regex(texts, FORMULA)
        if not compute.any(starts).as_py():
            return texts
        numbers = compute.match_substring_regex(texts, NUMBER)
        risky = compute.and_not(starts, numbers)
        formulas.extend(texts.filter(risky)[:1].to_pylist())
        return compute.if_else(risky, compute.binary_join_element_wise("'", texts, ""), texts)

    def quoted(column: Arrow) -> Arrow:
        texts = column.cast(pa.string())
        if safe or not formulas:
            changed = texts if pa.types.is_primitive(column.type) else defused(texts)
            texts = changed if safe else texts
        special = compute.match_substring_regex(texts, f'["\r\n{separator}]')
        if compute.any(special).as_py():
            doubled = compute.replace_substring(texts, '"', '""')
            wrapped = compute.binary_join_element_wise('"', doubled, '"', "")
            texts = compute.if_else(special, wrapped, texts)
        return texts.fill_null("")

    def write(batch: Arrow) -> None:
        cells = [quoted(column) for column in batch.columns]
        lines = compute.binary_join_element_wise(*cells, separator)
        sink.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())

    names = [pa.array([name], pa.string()) for name in schema.names]
    write(pa.RecordBatch.from_arrays(names, schema.names))
    return write
