"""Tables out: new columns, alone or beside all those of a table that was read.

A file appears whole or not at all: it is written beside its place and gets its name at the end.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from moml.atomic import atomic_write
from moml.data.table.arrow import arrow
from moml.data.table.csv_files import csv_batches
from moml.data.table.csv_survey import surveyed
from moml.data.table.files import ROWS, batches, files_of, format_of, schema_of, told
from moml.errors import DataError

Write = Callable[[Any], None]  # of a record batch


def write_table(columns: Mapping[str, Any], path: str | PathLike[str]) -> None:
    """Columns (arrays, lists, arrow arrays of one length) to a Parquet, CSV or Arrow file."""
    table = _arrow_table(columns)
    with _writer(path, table.schema) as write:
        for batch in table.to_batches(ROWS):
            write(batch)


def extend_table(
    source: str | PathLike[str],
    columns: Mapping[str, Any],
    path: str | PathLike[str],
    text: Iterable[str] = (),
) -> None:
    """All rows and columns of the table at `source`, in their order, and further columns beside.

    The source is streamed, and no value of it is changed: from CSV to CSV its text is copied. From
    CSV to another format columns get the types that all their values have, those in `text` none.
    """
    pa, files, more = arrow(), files_of(source), _arrow_table(columns)
    plain, text = format_of(path) == "csv", frozenset(text)
    opened = []
    for file in files:
        with told(file):
            opened.append((file, *_typed(file, plain, text)))
    for name in more.column_names:
        if any(name in schema.names for _, schema, _ in opened):
            raise DataError(f"{source} has a column {name} already; rename it first")
    try:
        schema = pa.unify_schemas([schema for _, schema, _ in opened], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"{source}: files of different columns: {error}") from error
    for field in more.schema:
        schema = schema.append(field)
    row = 0
    with _writer(path, schema) as write:
        for file, own, dialect in opened:
            for batch in _rows(file, own, dialect, plain):
                beside = more.slice(row, batch.num_rows)
                row += batch.num_rows
                if beside.num_rows < batch.num_rows:
                    break
                arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
                arrays |= {name: beside[name].combine_chunks() for name in beside.column_names}
                none = partial(pa.nulls, batch.num_rows)
                full = [
                    arrays[field.name].cast(field.type)
                    if field.name in arrays
                    else none(field.type)
                    for field in schema
                ]
                write(pa.RecordBatch.from_arrays(full, schema=schema))
        if row != more.num_rows:
            raise DataError(
                f"{source} does not have as many rows as its new columns, {len(more):,}"
            )


def _typed(file: Path, plain: bool, text: frozenset[str]) -> tuple[Any, Any]:
    """The columns of a file as they are written out, and how a CSV is written."""
    pa = arrow()
    schema, dialect = schema_of(file)
    if not _is_csv(file):
        return schema, dialect
    types: dict[str, Any] = dict.fromkeys(schema.names, pa.string())
    if not plain:
        types = surveyed(file, dialect, schema.names, text, strict=False)
    texts = lambda given: pa.string() if pa.types.is_dictionary(given) else given
    return pa.schema([(name, texts(given)) for name, given in types.items()]), dialect


def _rows(file: Path, schema: Any, dialect: Any, plain: bool) -> Iterator[Any]:
    with told(file):
        if _is_csv(file):
            types = dict(zip(schema.names, schema.types, strict=True))
            yield from csv_batches(file, dialect, types, schema.names, raw=plain)
        else:
            yield from batches(file, schema, schema.names)


def _is_csv(file: Path) -> bool:
    return format_of(file) == "csv"


def _arrow_table(columns: Mapping[str, Any]) -> Any:
    pa = arrow()
    try:
        return pa.table({name: pa.array(values) for name, values in columns.items()})
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"columns to write must be equally long, each of one type: {error}"
        ) from error


@contextmanager
def _writer(path: str | PathLike[str], schema: Any) -> Iterator[Write]:
    """A function that writes record batches; the file gets its name when all are written."""
    pa, place, kind = arrow(), Path(path), format_of(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        compression = "gzip" if place.name.lower().endswith(".gz") else None
        with (
            atomic_write(place) as file,
            open(os.dup(file.fileno()), "wb") as closed,  # by arrow
            pa.output_stream(closed, compression=compression) as sink,
            _format_writer(kind, sink, schema, place) as write,
        ):
            yield write
    except (OSError, pa.ArrowException) as error:
        words = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise DataError(f"{path} cannot be written: {words}") from error


@contextmanager
def _format_writer(kind: str, sink: Any, schema: Any, place: Path) -> Iterator[Write]:
    if kind == "csv":
        tabs = place.name.lower().endswith((".tsv", ".tsv.gz"))
        yield _csv_writer(sink, schema, "\t" if tabs else ",")
        return
    from pyarrow import parquet

    with (parquet.ParquetWriter if kind == "parquet" else arrow().ipc.new_file)(sink, schema) as to:
        yield to.write_batch


def _csv_writer(sink: Any, schema: Any, separator: str) -> Write:
    """CSV with quotes around the cells that need them; arrow's own writer quotes every text."""
    pa = arrow()
    compute = pa.compute

    def quoted(column: Any) -> Any:
        texts = column.cast(pa.string())
        special = compute.match_substring_regex(texts, f'["\r\n{separator}]')
        if compute.any(special).as_py():
            doubled = compute.replace_substring(texts, '"', '""')
            wrapped = compute.binary_join_element_wise('"', doubled, '"', "")
            texts = compute.if_else(special, wrapped, texts)
        return texts.fill_null("")

    def write(batch: Any) -> None:
        cells = [quoted(column) for column in batch.columns]
        lines = compute.binary_join_element_wise(*cells, separator)
        sink.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())

    names = [pa.array([name], pa.string()) for name in schema.names]
    write(pa.RecordBatch.from_arrays(names, schema.names))
    return write
