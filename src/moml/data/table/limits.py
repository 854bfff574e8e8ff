"""Table files in memory: their rows by batches, and bounds, checked before rows are decoded.

A few kilobytes can stand for billions of rows. A table may take SMALL bytes, or RATIO times the
bytes of its files if that is more; the environment variable MOML_TABLE_GB sets another bound.
"""

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from moml.data.table.arrow import Arrow, Chunk, arrow, chunk_of
from moml.errors import ConfigError, DataError

SMALL, RATIO = 512 << 20, 50
COLUMNS = 100_000  # of a CSV; arrow needs some 10 kB of each
VARIABLE = "MOML_TABLE_GB"


class Meter:
    """How many bytes a table may take, and how many its rows take that were read so far."""

    def __init__(self, files: Sequence[Path]):
        self.name = files[0] if len(files) == 1 else files[0].parent
        self.most, self.used = max(SMALL, RATIO * sum(f.stat().st_size for f in files)), 0
        if given := os.environ.get(VARIABLE):
            try:
                self.most = int(2**30 * float(given))
            except (ValueError, OverflowError) as error:
                raise ConfigError(f"{VARIABLE} must be a number; got {given!r}") from error

    def check(self, more: int) -> None:
        """Raise if so many bytes more are too many."""
        if self.used + more > self.most:
            least = (self.used + more) / 2**30
            raise DataError(
                f"{self.name} must take at most {self.most / 2**30:.1f} GiB of memory, by its size "
                f"on disk; got {least:.1f} or more; {VARIABLE}={least + 1:.0f} allows more"
            )

    def add(self, chunks: Sequence[Chunk], words: set[int]) -> None:
        """Count rows; `words` has the addresses of the dictionaries that were counted."""
        for chunk in chunks:
            self.used += 8 * chunk.rows
            if chunk.kind == "text" and id_of(chunk.values.dictionary) not in words:
                words.add(id_of(chunk.values.dictionary))
                self.used += chunk.values.dictionary.nbytes
        self.check(0)


def gathered(
    batches: Iterable[Arrow], names: Sequence[str], text: frozenset[str], meter: Meter
) -> tuple[dict[str, list[Chunk]], int]:
    """The columns of record batches, and the number of rows; those in `text` are text."""
    parts: dict[str, list[Chunk]] = {name: [] for name in names}
    words: set[int] = set()
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        for name, array in zip(names, batch.columns, strict=True):
            parts[name].append(chunk_of(array, name in text, name))
        meter.add([chunks[-1] for chunks in parts.values()], words)
    return parts, rows


def id_of(array: Arrow) -> int:
    """The address of an array's first values: arrays that share them have the same."""
    return next((b.address for b in reversed(array.buffers()) if b is not None), 0)


def check_batch(batch: Arrow, meter: Meter) -> None:
    """Raise if the texts of a batch are too large: views of one buffer may overlap."""
    pa = arrow()
    for array in batch.columns:
        if pa.types.is_string_view(array.type):
            views = np.frombuffer(array.buffers()[1], "<i4").reshape(-1, 4)[array.offset :]
            lengths = views[: len(array), 0][array.is_valid().to_numpy(zero_copy_only=False)]
            meter.check(int(lengths.sum(dtype=np.int64)))


def check_parquet(reader: Arrow, meter: Meter) -> None:
    """Raise if the footer of a Parquet file says that a part of it is too large."""
    about = reader.metadata
    groups = [about.row_group(i).total_byte_size for i in range(about.num_row_groups)]
    meter.check(max([8 * about.num_rows, *groups]))


def check_ipc(path: Path, start: int, meter: Meter) -> None:
    """Raise if a compressed batch of an Arrow file is too large when it is decompressed."""
    pa = arrow()
    with pa.memory_map(str(path)) as source:
        source.seek(start)
        for message in pa.ipc.MessageReader.open_stream(source):
            if message.type in ("record batch", "dictionary"):
                meter.check(_decompressed(message))


def _decompressed(message: Arrow) -> int:
    """The bytes of a batch's buffers: each has its size before it, or -1 if it is as it was."""
    head, body = message.metadata.to_pybytes(), message.body

    def number(form: str, at: int) -> int:
        return struct.unpack_from(form, head, at)[0]

    def field(table: int, i: int) -> int:  # of a flatbuffer: its place, 0 if it is not there
        places = table - number("<i", table)
        there = 4 + 2 * i < number("<H", places)
        offset = number("<H", places + 4 + 2 * i) if there else 0
        return table + offset if offset else 0

    def follow(at: int) -> int:
        return at + number("<I", at)

    try:
        batch = follow(field(follow(0), 2))  # Message.header
        if message.type == "dictionary":
            batch = follow(field(batch, 1))  # DictionaryBatch.data
        if not field(batch, 3):  # RecordBatch.compression
            return 0
        buffers = follow(field(batch, 2))
        places = [buffers + 4 + 16 * i for i in range(number("<I", buffers))]
        sized = [number("<q", at) for at in places if number("<q", at + 8) >= 8]
        return sum(max(0, struct.unpack("<q", body[at : at + 8])[0]) for at in sized)
    except (struct.error, ValueError, IndexError) as error:
        raise OSError(f"its metadata is damaged: {error}") from error
