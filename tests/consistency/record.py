"""Records what short runs with fixed seeds end with: numbers, models, predictions.

    python tests/consistency/record.py --out tests/consistency   # record.npz and rows.json
    python tests/consistency/record.py --compare                 # again, beside what is stored

It knows of the library only the command line and `moml.load`, so it outlives any rebuilding.
rows.json has the rows, and dtype, shape and SHA-256 of every array; record.npz has the arrays
themselves, of large ones a few sums and the first numbers.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
LARGE = 2000  # numbers; of larger arrays only a digest is stored
LEFT_OUT = {
    "seconds",
    "time",
    "ms",
    "values",
    "above",
}  # clocks; what rows did not have when recorded
SHORT = "--log-every 100 --score-every 200 --test-tasks 20"
SINE = {
    "moml-v1": "--method moml-v1 --iterations 450",  # the last stretch is a short one
    "moml-v2": "--method moml-v2 --iterations 400 --k 2 --two-batches True",
    "localmoml": "--method localmoml --carried True --beta 0.3 --iterations 400 --k 2",
    "moml": "--method moml --shots 5 --iterations 400 --beta rule",
}
CLIENTS = (
    "--method localmoml --carried True --beta 0.3 --problem.n 10 --problem.unseen 2 "
    "--problem.test_a 20 --problem.hidden 8 --iterations 60 --log-every 20 --score-every 40 "
    "--tasks-per-step 4 --k 5 --dropout 0.3 --straggle 0.3"
)


def moml(command):
    """Carry out one command in this process."""
    from moml.cli import main

    print(f"$ moml {command}", flush=True)
    began, used, sys.argv = time.monotonic(), time.process_time(), ["moml", *command.split()]
    main()
    used = time.process_time() - used
    print(f"({time.monotonic() - began:.1f} s, {used:.1f} s of a core)", flush=True)


def timeless(rows):
    """Rows without what is not compared."""
    if isinstance(rows, dict):
        return {name: timeless(value) for name, value in rows.items() if name not in LEFT_OUT}
    return [timeless(row) for row in rows] if isinstance(rows, list) else rows


def json_rows(file):
    """The rows of a JSON file."""
    return timeless(json.loads(file.read_text()))


def metrics(folder):
    """The lines of all metrics files of a folder, in order."""
    files = sorted(folder.rglob("metrics.jsonl"))
    return [timeless(json.loads(line)) for file in files for line in file.read_text().splitlines()]


def leaves(tree):
    """The arrays of a pytree, in order; random keys as their numbers."""
    import jax

    plain = lambda x: (
        jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    )
    return [np.asarray(plain(jax.numpy.asarray(leaf))) for leaf in jax.tree.leaves(tree)]


def trained(name, folder):
    """What a run's folder ends with."""
    import moml as library

    learner = library.load(folder)
    return {
        f"{name}/metrics": metrics(folder),
        f"{name}/state": leaves(learner.state),
        f"{name}/meta": leaves(learner.meta),
    }


def sine(name):
    """One training on waves."""
    moml(f"train sine {SINE[name]} {SHORT} --out {name}")
    return trained(f"train/{name}", Path(name))


def score():
    """The first of them, scored with other shots and steps."""
    moml("score moml-v1 --shots 3 7 --steps 2 --tasks 15 --json score.json")
    return {"score/moml-v1": json_rows(Path("score.json"))}


def sweep():
    """A grid; the members with a huge eta diverge."""
    moml(
        "sweep sine --method moml-v1 --grid eta=.005,100 beta=.1,.5 --seeds 2 "
        "--iterations 200 --log-every 100 --score-every 200 --test-tasks 20 --out grid"
    )
    rows = next(iter(sorted(Path("grid").rglob("rows.json"))))
    return {"sweep/rows": json_rows(rows), "sweep/metrics": metrics(Path("grid"))}


def clients():
    """Federated clients, of which some fail and some are slow."""
    moml(f"train cifar10-clients {CLIENTS} --out clients")
    return trained("train/cifar10-clients", Path("clients"))


def write_users(file, seed, first, count):
    """A table of users who differ in level and slope."""
    draw = np.random.RandomState(seed)
    with file.open("w", newline="") as out:
        write = csv.writer(out)
        write.writerow(["user", "day", "kind", "x", "y"])
        for user in range(first, first + count):
            level, slope = draw.normal(size=2)
            for day in range(draw.randint(6, 11)):
                kind, x = "abc"[draw.randint(3)], draw.normal()
                y = 20 + 5 * (level + (1 + 0.5 * slope) * x + (kind == "a") + 0.4 * draw.normal())
                write.writerow([f"u{user}", day, kind, f"{x:.6f}", f"{y:.6f}"])


def read_columns(file):
    """The columns of a CSV file."""
    with file.open(newline="") as rows:
        found = list(csv.DictReader(rows))
    return {name: [row[name] for row in found] for name in found[0]}


def table():
    """A table: its scores, and predictions for known users and for new ones that adapt.

    Networks alone, as version 0.1 had: by default so few users are cross-fitted now. Rows of
    LightGBM, which it had not, are left out.
    """
    import moml as library

    had = lambda rows: [row for row in rows if row["model"] != "lightgbm"]
    for name, *what in (("users", 1, 0, 40), ("later", 2, 35, 10), ("asked", 3, 30, 20)):
        write_users(Path(f"{name}.csv"), *what)
    run = library.train_table(
        "users.csv", task="user", target="y", order="day", out="table", members=1, iterations=200,
        refit=False, kinds=("summary", "head"),
    )  # fmt: skip
    moml("evaluate table --json evaluated.json")
    moml("evaluate table --data later.csv --json others.json")
    moml("predict table --data asked.csv --adapt-on later.csv --out predicted.csv")
    columns = read_columns(Path("predicted.csv"))
    numbers = [np.array(columns["prediction"], float)]
    return {
        "table/fitted": timeless(had(json.loads(json.dumps(run.evaluation)))),
        "table/evaluated": had(json_rows(Path("evaluated.json"))),
        "table/others": json_rows(Path("others.json")),
        "table/users": columns["user"],
        "table/predicted": numbers,
    }


def released():
    """A row of the paper's table, by the protocol of its code."""
    moml(
        "reproduce sine --protocol released --k 1 --methods moml-v1 --seeds 2 "
        "--iterations 200 --out released"
    )
    return {"reproduce/sine": json_rows(Path("released/rows.json"))}


HALVES = (  # two processes, for two cores
    (*(lambda name=name: sine(name) for name in SINE), score),
    (sweep, released, table),
)


def digest(array):
    """What is stored of an array: itself if it is small, else sums and its first numbers."""
    if array.dtype.kind not in "biuf":  # bfloat16, which npz does not know
        array = array.astype(np.float32)
    if array.size <= LARGE:
        return array
    flat = array.ravel().astype(np.float64)
    turned = flat @ np.cos(np.arange(flat.size))  # knows places apart
    return np.array([flat.sum(), np.abs(flat).sum(), flat @ flat, turned, *flat[:50]])


def write(found, out):
    """Write the record of what was found."""
    out.mkdir(parents=True, exist_ok=True)
    arrays, rows, about = {}, {}, {}
    for entry, value in found.items():
        if not isinstance(value[0], np.ndarray):
            rows[entry] = value
            continue
        about[entry] = [
            {
                "dtype": str(each.dtype),
                "shape": list(each.shape),
                "sha256": hashlib.sha256(each.tobytes()).hexdigest(),
            }
            for each in value
        ]
        arrays |= {f"{entry}/{i:02}": digest(each) for i, each in enumerate(value)}
    np.savez_compressed(out / "record.npz", **arrays)
    told = {"data": bool(os.environ.get("MOML_DATA")), "arrays": about, "rows": rows}
    (out / "rows.json").write_text(json.dumps(told, indent=1) + "\n")


def read(folder):
    """A record: of every entry its rows, or its arrays and what is known of them."""
    told = json.loads((folder / "rows.json").read_text())
    with np.load(folder / "record.npz") as kept:
        arrays = {
            entry: (about, [kept[f"{entry}/{i:02}"] for i in range(len(about))])
            for entry, about in told["arrays"].items()
        }
    return told["rows"] | arrays


def numbers_of(rows, place=""):
    """Rows as pairs of a place and a value, in order."""
    if isinstance(rows, dict | list):
        inside = rows.items() if isinstance(rows, dict) else enumerate(rows)
        return [pair for key, value in inside for pair in numbers_of(value, f"{place}/{key}")]
    return [(place, rows)]


def apart(old, new):
    """The largest relative difference; a number counts as a tenth of the largest at least."""
    old, new = np.asarray(old, np.float64), np.asarray(new, np.float64)
    if not np.array_equal(np.isfinite(old), np.isfinite(new)):
        return np.inf
    rest = ~np.isfinite(old)
    if not np.array_equal(old[rest], new[rest], equal_nan=True):
        return np.inf
    old, new = old[~rest], new[~rest]
    scale = np.maximum(np.abs(old), 0.1 * np.abs(old).max(initial=0))
    return float((np.abs(new - old) / np.where(scale > 0, scale, 1)).max(initial=0))


def difference(old, new):
    """Of one entry: whether all bytes are equal, the largest difference, what does not match."""
    if isinstance(old, tuple):
        kind = lambda record: [(each["dtype"], each["shape"]) for each in record[0]]
        if kind(old) != kind(new):
            return False, np.inf, f"arrays were {kind(old)} and are {kind(new)}"
        far = max(apart(a, b) for a, b in zip(old[1], new[1], strict=True))
        return old[0] == new[0], far, ""
    olds, news = numbers_of(old), numbers_of(new)
    if [place for place, _ in olds] != [place for place, _ in news]:
        return False, np.inf, f"other rows or fields: {old} and {new}"
    far = 0.0
    for (place, a), (_, b) in zip(olds, news, strict=True):
        if isinstance(a, float) and isinstance(b, float):
            far = max(far, apart(a, b))
        elif a != b:
            return False, np.inf, f"{place} was {a!r} and is {b!r}"
    return json.dumps(old) == json.dumps(new), far, ""


def compare(old, new):
    """Say of every entry how it differs."""
    for entry in old | new:
        if entry not in old or entry not in new:
            print(f"{entry:<32} left out of the {'stored' if entry in new else 'new'} record")
            continue
        same, far, why = difference(old[entry], new[entry])
        told = why or f"largest relative difference {far:.1e}"
        print(f"{entry:<32} {'equal bytes' if same else told}")


def half(which, out):
    """Run one half of the commands in a folder that is then gone."""
    found, out = {}, out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for step in HALVES[which]:
            found |= step()
        if which == 0 and os.environ.get("MOML_DATA"):
            found |= clients()
        os.chdir("/")
    write(found, out)


def record(out):
    """Run everything, each half in a process of its own without settings for XLA and JAX."""
    clean = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS" and not k.startswith("JAX_")}
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder, str(which)) for which in range(len(HALVES))]
        command = [sys.executable, __file__, "--half"]
        started = [
            subprocess.Popen([*command, str(which), "--out", part], env=clean)
            for which, part in enumerate(parts)
        ]
        if any([process.wait() for process in started]):
            sys.exit("a command failed: see above")
        found, rows = {}, {"data": False, "arrays": {}, "rows": {}}
        for part in parts:
            with np.load(part / "record.npz") as kept:
                found |= dict(kept)
            told = json.loads((part / "rows.json").read_text())
            rows["data"] = told["data"]
            rows["arrays"] |= told["arrays"]
            rows["rows"] |= told["rows"]
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "record.npz", **found)
    (out / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")


def main():
    """Record, or compare with what is recorded."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, help="folder for record.npz and rows.json")
    options.add_argument("--compare", action="store_true", help="compare with the stored record")
    options.add_argument("--half", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.half is not None:
        half(given.half, given.out)
    elif given.compare:
        with tempfile.TemporaryDirectory() as folder:
            out = given.out or Path(folder)
            record(out)
            compare(read(HERE), read(out))
    elif given.out:
        record(given.out)
    else:
        options.error("give --out FOLDER or --compare")


if __name__ == "__main__":
    main()
