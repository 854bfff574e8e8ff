"""Reading a table of 10^5 tasks x 20 rows x 20 columns, against pyarrow's own reading of it alone.

Ours is what training starts with: the file to columns, rows to tasks, columns learned, features
encoded. pyarrow reads all columns into its own table, with its default threads, and does no more.
Peak memory is that of a process of its own, from the start of Python. TMPDIR says which disk: the
files take 0.5 GB there. On a busy machine the ratios of processor time are the ones to look at.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from moml.data.table.columns import learn_columns
from moml.data.table.frame import Table, read_table
from moml.data.table.groups import group, split

TASKS, ROWS, TURNS = 100_000, 20, 3
TEXTS = ["city", "device"]
FORMATS = {"parquet": parquet.read_table, "csv": csv.read_csv}


def batches(tasks: int) -> Iterator[pa.RecordBatch]:
    """20 columns: an id, 15 numbers with some missing, a target, two texts, a date."""
    generator = np.random.default_rng(0)
    cities = pa.array([f"city {i}" for i in range(40)])
    devices = pa.array(["phone", "tablet", "desktop"])
    for first in range(0, tasks, 1000):
        users = np.arange(first, min(first + 1000, tasks)).repeat(ROWS)
        n = len(users)
        numbers = generator.normal(size=(15, n)).astype(np.float32).round(4)
        columns = {"user": pa.array(users)}
        for i, values in enumerate(numbers):
            columns[f"x{i}"] = pa.array(values, mask=generator.random(n) < 0.02 * (i % 3))
        columns["city"] = cities.take(pa.array(generator.integers(0, 40, n)))
        columns["device"] = devices.take(pa.array(generator.integers(0, 3, n)))
        seconds = 1_600_000_000 + generator.integers(0, 100_000_000, n)
        columns["when"] = pa.array(seconds.astype("M8[s]"))
        columns["y"] = pa.array((numbers[0] + numbers[1] ** 2).round(4))
        yield pa.RecordBatch.from_pydict(columns)


def write(folder: Path, tasks: int) -> None:
    schema = next(batches(1)).schema
    with (
        parquet.ParquetWriter(folder / "table.parquet", schema) as one,
        csv.CSVWriter(folder / "table.csv", schema) as other,
    ):
        for batch in batches(tasks):
            one.write_batch(batch)
            other.write_batch(batch)


def read(path: Path) -> Table:
    return read_table(path, text=["user"])


def prepared(path: Path) -> tuple[int, int]:
    """All that comes before training; the shape of the features."""
    table = read(path)
    groups = group(table, "user", order="when")
    parts = split(groups, 0.25, seed=0)
    columns = learn_columns(table, "y", exclude=["user"], rows=groups.among(parts.train))
    columns.target(table)
    return columns.encode(table).shape


def best(sides: dict[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """Seconds of each side, of the clock and of all processors, in turns, the best of each."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, call in sides.items():
            clock, processors = time.perf_counter(), time.process_time()
            call()
            took = time.perf_counter() - clock, time.process_time() - processors
            seconds[name].append(took)
    return {name: tuple(map(min, zip(*found, strict=True))) for name, found in seconds.items()}


def peak(path: str) -> float:
    """GiB of a process that does nothing but prepare the table at `path`, if there is one."""
    command = [sys.executable, __file__, "--peak", path]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--peak", help="prepare this file and print the peak memory alone")
    given = parser.parse_args()
    if given.peak is not None:
        if given.peak:
            prepared(Path(given.peak))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
        return
    from common import machine

    machine(pyarrow=pa.__version__)
    rows = given.tasks * ROWS
    print(f"{given.tasks:,} tasks x {ROWS} rows x 20 columns; the imports take {peak(''):.2f} GiB")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), given.tasks)
        for name, alone in FORMATS.items():
            path = Path(folder, f"table.{name}")
            sides = {
                "pyarrow": lambda alone=alone, path=path: alone(path),
                "read": lambda path=path: read(path),
                "prepared": lambda path=path: prepared(path),
            }
            took = best(sides)
            for side, (clock, processors) in took.items():
                speed = f"{rows / clock / 1e6:6.2f} million rows/s"
                print(
                    f"{name:8} {side:9} {clock:7.2f} s  {speed}  {processors:7.2f} s of processors"
                )
            print(f"{name:8} {path.stat().st_size / 1e6:.0f} MB, peak {peak(str(path)):.2f} GiB")
            for side in ("read", "prepared"):
                clock, processors = np.divide(took[side], took["pyarrow"])
                print(f"ratio {name}_{side}_over_pyarrow {clock:.3f}")
                print(f"ratio {name}_{side}_over_pyarrow_processors {processors:.3f}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
