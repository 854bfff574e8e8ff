"""Peak memory of `moml train --data` and `moml predict` on 10^5 tasks x 20 rows x 20 columns.

Each command runs in a process of its own, whose peak counts from the start of Python. Few
iterations: memory does not grow with them. TMPDIR says which disk: the files take 1 GB there.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from pyarrow import parquet

from bench_tables_read import TASKS, batches

COMMAND = """
import resource, sys, time
sys.path.insert(0, sys.argv[1])
from moml.cli import run
began = time.perf_counter()
run(sys.argv[2:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(f"peak memory {peak:.2f} GiB, {time.perf_counter() - began:.0f} s")
"""


def moml(*words: object) -> None:
    print(f"moml {words[0]} ...", flush=True)
    command = [sys.executable, "-c", COMMAND, sys.path[0], *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    print(done.stdout.splitlines()[-1], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--members", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        table, run = Path(name) / "table.parquet", Path(name) / "run"
        with parquet.ParquetWriter(table, next(batches(1)).schema) as writer:
            for batch in batches(given.tasks):
                writer.write_batch(batch)
        few = ["--iterations", given.iterations, "--members", given.members]
        columns = ["--task", "user", "--target", "y", "--order", "when"]
        moml("train", "--data", table, *columns, *few, "--out", run)
        moml("predict", run, "--data", table, "--out", Path(name) / "predictions.parquet")


if __name__ == "__main__":
    main()
