"""`moml train --data` on a large table beside LightGBM with features of the known rows.

    python benchmarks/bench_tables_large.py [--tasks 50000] [--columns 15] [--trees 100 1000]

Both sides read the same Parquet file of tasks x 20 rows, and predict the later ten rows of 2,000
new tasks from their first ten. Each runs in a process of its own; processor time, time of the clock
and peak memory are those of that process, with nothing compiled before. moml runs by its defaults.
LightGBM learns from the later rows of all tasks beside the summary of the first ten that
`benchmarks/tables/rivals.py` uses: 100 trees by its defaults, or as many as in rivals.py at half
that rate, stopped early on a seventh of the tasks. TMPDIR says which disk.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import pyarrow as pa
from pyarrow import parquet

ROWS, KNOWN, NEW, ROW_GROUP = 20, 10, 2_000, 2_500  # rows a task; new tasks; tasks a row group
DEFAULT, PATIENCE, SHARE = 100, 50, 7  # trees of LightGBM's defaults; one in 7 tasks to stop by


def batches(tasks: int, columns: int, seed: int, first: int = 0) -> Iterator[pa.RecordBatch]:
    """Tasks with a level and three slopes of their own, beside what is common to all."""
    draw = np.random.default_rng(seed)
    for begin in range(first, first + tasks, ROW_GROUP):
        ids = np.arange(begin, min(begin + ROW_GROUP, first + tasks)).repeat(ROWS)
        n = len(ids)
        own = draw.normal(size=(n // ROWS, 4)).repeat(ROWS, axis=0)
        x = draw.normal(size=(n, columns)).astype(np.float32)
        common = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] ** 2 + x[:, 2] * x[:, 3] + x[:, 4]
        y = common + own[:, 0] + 0.5 * np.sum(own[:, 1:] * x[:, 5:8], axis=1)
        y = (y + 0.5 * draw.normal(size=n)).astype(np.float32)
        day = np.tile(np.arange(ROWS, dtype=np.int32), n // ROWS)
        inputs = {f"x{j}": x[:, j] for j in range(columns)}
        yield pa.RecordBatch.from_pydict({"user": ids, "day": day, "y": y} | inputs)


def write(folder: Path, tasks: int, columns: int) -> None:
    """The table; and of new tasks the known rows and those to predict."""
    schema = next(batches(1, columns, 0)).schema
    with parquet.ParquetWriter(folder / "train.parquet", schema) as out:
        for batch in batches(tasks, columns, 1):
            out.write_batch(batch)
    new = pa.Table.from_batches(batches(NEW, columns, 2, first=10**9))
    known = pa.compute.less(new["day"], KNOWN)
    parquet.write_table(new.filter(known), folder / "known.parquet")
    parquet.write_table(new.filter(pa.compute.invert(known)), folder / "asked.parquet")


def arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [tasks, rows, columns + 1] and targets [tasks, rows]; the file is in order."""
    table = parquet.read_table(path)
    names = [name for name in table.column_names if name not in ("user", "y")]
    x = np.column_stack([table[name].to_numpy().astype(np.float32) for name in names])
    tasks = len(np.unique(table["user"].to_numpy()))
    return x.reshape(tasks, -1, len(names)), table["y"].to_numpy().reshape(tasks, -1)


def asked(x: np.ndarray, y: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Query rows beside mean, last and spread of the known targets, their number, inputs."""
    number = np.full((len(y), 1), y.shape[1], np.float32)
    known = [y.mean(1)[:, None], y[:, -1:], y.std(1)[:, None], number, x.mean(1), x[:, -1]]
    some = np.concatenate(known, axis=1).repeat(query.shape[1], axis=0)
    return np.concatenate([query.reshape(-1, query.shape[2]), some], axis=1)


def lightgbm(folder: Path, trees: int) -> None:
    """Train on the table, predict the new tasks' rows; the file `predicted.npy`."""
    import lightgbm as lgb

    x, y = arrays(folder / "train.parquet")
    held = np.random.default_rng(0).permutation(len(x)) < len(x) // SHARE

    def rows(some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return asked(x[some, :KNOWN], y[some, :KNOWN], x[some, KNOWN:]), y[some, KNOWN:].ravel()

    settings = {"objective": "regression", "verbosity": -1, "num_threads": 1, "seed": 0}
    if trees != DEFAULT:
        settings |= {
            "learning_rate": 0.05, "feature_fraction": 0.8, "bagging_fraction": 0.8,
            "bagging_freq": 1,
        }  # fmt: skip
    data = lgb.Dataset(*rows(~held))
    valid = lgb.Dataset(*rows(held), reference=data)
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    found = lgb.train(settings, data, trees, valid_sets=[valid], callbacks=[stop])
    (xk, yk), (xq, _) = (arrays(folder / f"{name}.parquet") for name in ("known", "asked"))
    np.save(folder / "predicted.npy", found.predict(asked(xk, yk, xq)))


def moml(*words: object) -> None:
    from moml.cli import run

    run([*map(str, words)])


def measured(title: str, *words: object) -> dict[str, float]:
    """Run this script for one side in a process of its own: seconds and peak memory."""
    began = time.perf_counter()
    command = [sys.executable, str(Path(__file__).resolve()), "--side", *map(str, words)]
    environment = os.environ | {"MOML_CACHE": "off"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{title} failed: {process.returncode}")
    wall = time.perf_counter() - began
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
    print(f"{title:<26}{cpu:>8.0f} s CPU{wall:>8.0f} s{peak:>8.2f} GiB", flush=True)
    return {"cpu": cpu, "wall": wall, "peak": peak}


def error(folder: Path, predicted: np.ndarray) -> float:
    y = parquet.read_table(folder / "asked.parquet", columns=["y"])["y"].to_numpy()
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def side(words: list[str]) -> None:
    """One side, in its own process."""
    if words[0] == "lightgbm":
        lightgbm(Path(words[1]), int(words[2]))
    else:
        moml(*words)


def main() -> None:
    if sys.argv[1:2] == ["--side"]:
        side(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=15)
    parser.add_argument("--trees", nargs="*", type=int, default=[DEFAULT, 1000])
    parser.add_argument("--more", nargs="*", default=[], help="options of moml train")
    given = parser.parse_args()
    cpus = f"{os.cpu_count()} cores"
    print(f"{given.tasks:,} tasks x {ROWS} rows x {given.columns} columns, {cpus}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, given.tasks, given.columns)
        run, out = folder / "run", folder / "predicted.parquet"
        named = ["--task", "user", "--target", "y", "--order", "day", "--shots", KNOWN]
        more = [f"--{word}" if i % 2 == 0 else word for i, word in enumerate(given.more)]
        table = ["--data", folder / "train.parquet"]
        ours = measured("moml train", "train", *table, *named, *more, "--out", run)
        measured("moml predict, all rows", "predict", run, *table, "--out", folder / "all.parquet")
        new = ["--data", folder / "asked.parquet", "--adapt-on", folder / "known.parquet"]
        measured("moml predict, new tasks", "predict", run, *new, "--out", out)
        mine = error(folder, parquet.read_table(out)["prediction"].to_numpy())
        print(f"{'':<26}{mine:>8.4f} rmse of new tasks", flush=True)
        for trees in given.trees:
            rival = measured(f"LightGBM, {trees} trees", "lightgbm", folder, trees)
            theirs = error(folder, np.load(folder / "predicted.npy"))
            print(f"{'':<26}{theirs:>8.4f} rmse of new tasks", flush=True)
            ratios = [ours["cpu"] / rival["cpu"], ours["wall"] / rival["wall"], mine / theirs]
            print("moml over it: CPU {:.2f}, clock {:.2f}, rmse {:.3f}".format(*ratios))


if __name__ == "__main__":
    main()
