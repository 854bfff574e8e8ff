"""Rows of tables: read from any source, encoded by a run's columns, split, padded to batches."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from moml.algorithms.tabular.members import BOUND, Shape
from moml.data.table.cells import Cells
from moml.data.table.files import errors_named, files_of, format_of, schema_of
from moml.data.table.frame import PLAIN, Frame, Table, as_table, read_table
from moml.data.table.groups import Groups
from moml.data.table.write import extend_table
from moml.errors import ConfigError, DataError
from moml.tasks.clients import buckets
from moml.types import Batch

# a file, a folder of files, or columns in memory
Source = str | os.PathLike[str] | Table | Mapping[str, object] | Frame
RowLists = Sequence[Int[np.ndarray, " _"]]  # row numbers of each task
Tree = TypeVar("Tree")
CHUNK = 1024  # tasks or rows computed at a time
FEW, NARROW = 64, 16  # tasks computed at a time of up to a chunk, and the least rows of a batch
BATCH = 1 << 22  # inputs of a batch, padding included, unless one task has more


class Rows(NamedTuple):
    """Encoded rows with targets, by task."""

    groups: Groups
    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    remarks: list[str]  # on values that training has not seen


class SupportQuery(NamedTuple):
    """Row numbers of each task: those to adapt on, in order, and those to predict."""

    support: RowLists
    query: RowLists


def read(
    data: Source, columns: Sequence[str] | None, text: Sequence[str], cells: Cells = PLAIN
) -> Table:
    """A table from any source, its texts read by `cells`."""
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping | Frame):
        return as_table(data, text, cells=cells)
    if not isinstance(data, str | os.PathLike):
        given = type(data).__name__
        raise DataError(f"a table must be a file, columns by name or a frame; got {given}")
    return read_table(data, columns=columns, text=text, cells=cells)


def output(
    data: Source,
    out: str | os.PathLike[str] | None,
    new: Sequence[str],
    text: Sequence[str],
    safe: bool = False,
    cells: Cells = PLAIN,
) -> Callable[[Mapping[str, np.ndarray]], None]:
    """Check that `data` can be written to `out` with new columns; return what writes them."""
    if out is None:
        return lambda columns: None
    if not isinstance(data, str | os.PathLike):
        raise ConfigError("out needs a table in a file; got columns in memory")
    format_of(out)
    place = Path(out)
    if place.is_dir():
        raise ConfigError(f"{out} is a folder; give a file for the predictions")
    if place.exists() and place.samefile(data):
        raise ConfigError(f"{out} is the table itself; give another file for the predictions")
    for file in files_of(data):
        with errors_named(file):
            schema, _ = schema_of(file)
        for name in new:
            if name in schema.names:
                raise DataError(f"{file} has a column {name} already; rename it first")
        nested = [field for field in schema if field.type.num_fields]
        for field in nested if format_of(out) == "csv" else ():
            said = f"a CSV cannot hold column {field.name} of type {field.type}"
            raise DataError(f"{out}: {said}; give a name that ends in .parquet")
    return lambda columns: extend_table(data, columns, place, text=text, safe=safe, cells=cells)


def split_rows(
    groups: RowLists,
    shots: int,
    ordered: bool,
    rng: np.random.Generator,
    most: int | None = None,
) -> SupportQuery:
    """min(shots, half) rows of each task as support, the first or random ones; the rest as query.

    At most `most` query rows per task, drawn at random.
    """
    support, query = [], []
    for rows in groups:
        rows = rows if ordered else rng.permutation(rows)
        cut = min(shots, len(rows) // 2)
        rest = rows[cut:]
        if most is not None and len(rest) > most:
            rest = np.sort(rng.choice(rest, most, replace=False))
        support.append(rows[:cut])
        query.append(rest)
    return SupportQuery(support, query)


def as_input(x: ArrayLike) -> np.ndarray:
    """Inputs in the type that jax computes in, float32 by default."""
    return np.asarray(x, jnp.result_type(float))


def as_target(shape: Shape, y: ArrayLike) -> np.ndarray:
    """Targets as training uses them: class numbers, or bounded numbers."""
    if shape.classes is not None:
        return np.asarray(y, np.int32)
    return np.clip(as_input(y), -BOUND, BOUND)


def power(n: int) -> int:
    """The next power of two: few shapes, few compilations."""
    return 1 << max(0, n - 1).bit_length()


def padded(x: np.ndarray, y: np.ndarray, groups: RowLists, width: int, n: int) -> Batch:
    """The first `width` rows of each group as one batch [n, width], with a mask."""
    at, mask = np.zeros((n, width), int), np.zeros((n, width), x.dtype)
    for i, rows in enumerate(groups):
        some = rows[:width]
        at[i, : len(some)], mask[i, : len(some)] = some, 1
    if not len(x):
        x, y = np.zeros((1, *x.shape[1:]), x.dtype), np.zeros(1, y.dtype)
    return Batch(x[at], y[at], mask)


def by_size(
    x: np.ndarray,
    y: np.ndarray,
    groups: Sequence[ArrayLike],
    run: Callable[[np.ndarray, Batch], Tree],
) -> Tree:
    """`run(tasks, their rows)` for tasks of similar size at a time; the results in task order.

    All batches have as many tasks, some of them empty, and a power of two of rows per task: few
    shapes, few compilations. Tasks of very many rows come in smaller batches.
    """
    lists = [np.asarray(rows, int) for rows in groups]
    sizes = np.maximum([len(rows) for rows in lists], NARROW)
    each = FEW if len(lists) <= CHUNK else CHUNK
    found, order = [], []
    for every in buckets(sizes):
        width = power(int(sizes[every].max()))
        count = max(1, min(each, BATCH // (width * max(1, x.shape[1]))))
        for some in np.split(every, range(count, len(every), count)):
            done = run(some, padded(x, y, [lists[i] for i in some], width, count))
            found.append(jax.tree.map(lambda leaf, n=some.size: np.asarray(leaf)[:n], done))
            order.append(some)
    back = np.argsort(np.concatenate(order))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[back], *found)
