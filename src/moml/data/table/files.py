"""Table files: their formats, the files of a folder, and their rows by batches."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from os import PathLike
from pathlib import Path

from moml.data.table.arrow import Arrow, Chunk, Schema, arrow, missing_at
from moml.data.table.cells import Cells
from moml.data.table.csv_files import Csv, csv_chunks, csv_schema, decided
from moml.data.table.limits import Meter, check_batch, check_ipc, check_parquet, gathered
from moml.data.table.lists import expanded, names_in, picked
from moml.errors import DataError, reason

ENDINGS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    "arrow": (".arrow", ".feather", ".ipc"),
}
NAMED = 20  # columns that an error lists
ROWS = 1 << 16  # of a batch, in formats where it can be chosen


def format_of(path: str | PathLike[str]) -> str:
    """Parquet, csv or arrow, by the ending of a file's name.

    >>> format_of("visits/2024.csv.gz")
    'csv'
    """
    name = Path(path).name.lower()
    for kind, endings in ENDINGS.items():
        if name.endswith(endings):
            return kind
    known = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
    raise DataError(f"{path}: a table's name must end in {known}")


def files_of(path: str | PathLike[str]) -> list[Path]:
    """The file itself, or the table files of a folder, sorted; names with . or _ first are not."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if not path.is_dir():
        format_of(path)
        return [path]
    endings = tuple(ending for endings in ENDINGS.values() for ending in endings)
    mine = lambda file: file.name[0] not in "._" and file.name.lower().endswith(endings)
    files = sorted(file for file in path.iterdir() if file.is_file() and mine(file))
    if not files:
        raise DataError(f"the folder {path} has no file that ends in {', '.join(endings)}")
    return files


def chunks_of(
    path: Path,
    columns: Sequence[str] | None,
    text: frozenset[str],
    meter: Meter,
    cells: Cells,
) -> tuple[dict[str, list[Chunk]], int]:
    """The columns of a file that are asked for, and its number of rows."""
    with errors_named(path):
        schema, csv = schema_of(path)
        known = names_in(schema)
        names = [name for column in schema.names for name in known[column]]
        for name, count in Counter(names).items():
            if count > 1:
                raise DataError(f"{path} has two columns of the name {name}")
        wanted = list(dict.fromkeys(expanded(columns or names, names)))
        for name in set(wanted) - set(names):
            raise no_column(str(path), name, schema.names)
        if csv is not None:
            return csv_chunks(csv, schema, wanted, text, meter, cells)
        stored = [column for column in schema.names if not set(wanted).isdisjoint(known[column])]
        found = batches(path, schema, stored, meter)
        parts, rows = gathered((picked(batch, wanted) for batch in found), wanted, text, meter)
        return applied(parts, str(path), text, cells), rows


def applied(
    parts: dict[str, list[Chunk]], place: str, text: frozenset[str], cells: Cells
) -> dict[str, list[Chunk]]:
    """The columns with texts read by a form, except those in `text`; `na` is missing in all."""
    found = parts
    if cells.na:
        found = {name: [missing_at(chunk, cells.na) for chunk in parts[name]] for name in parts}
    for name in () if cells.plain else set(found) - text:
        if any(chunk.kind == "text" for chunk in found[name]):
            found[name] = decided(f"{place}, column {name}", found[name], cells)
    return found


def schema_of(path: Path) -> tuple[Schema, Csv | None]:
    """The columns of a file; of a CSV also how it is written."""
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    kind = format_of(path)
    if kind == "csv":
        return csv_schema(path)
    if kind == "parquet":
        from pyarrow import parquet

        return parquet.read_schema(path), None
    with _opened(path)[0] as reader:
        return reader.schema, None


def batches(path: Path, schema: Schema, columns: Sequence[str], meter: Meter) -> Iterator[Arrow]:
    """Record batches of a Parquet or Arrow file, with the columns in this order."""
    if format_of(path) == "parquet":
        from pyarrow import parquet

        types = arrow().types
        texts = [f.name for f in schema if types.is_string(f.type) or types.is_large_string(f.type)]
        reader = parquet.ParquetFile(path, read_dictionary=texts)
        check_parquet(reader, meter)
        found = reader.iter_batches(ROWS, columns=list(columns))
    else:
        reader, start = _opened(path)
        check_ipc(path, start, meter)
        stream = isinstance(reader, arrow().ipc.RecordBatchStreamReader)
        found = reader if stream else map(reader.get_batch, range(reader.num_record_batches))
    with reader:
        for batch in found:
            batch = batch.select(list(columns))
            batch.validate(full=True)  # the offsets of a damaged file may point anywhere
            check_batch(batch, meter)
            yield batch


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Turn errors of arrow and the system into one line that names the file."""
    pa = arrow()
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError, MemoryError) as error:
        raise DataError(f"{path} cannot be read: {reason(error)}") from error


def no_column(place: str, name: str, names: Sequence[str]) -> DataError:
    """The error of a missing column, which lists those there are."""
    shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if names[NAMED:] else "")
    near = get_close_matches(name, names, n=1)
    hint = f"; is it {near[0]!r}?" if near else ""
    return DataError(f"{place} has no column {name}; there are: {shown}{hint}")


def _opened(path: Path) -> tuple[Arrow, int]:
    """A reader of an Arrow file, in the file or the streaming form, and where messages start."""
    ipc = arrow().ipc
    with open(path, "rb") as file:
        start = file.read(6)
    source = arrow().OSFile(str(path))
    return (ipc.open_file(source), 8) if start == b"ARROW1" else (ipc.open_stream(source), 0)
