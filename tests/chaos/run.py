"""`make test-chaos`: seeded trials of what kills, full disks and damage do to moml's files.

python -m tests.chaos.run --seeds 0 1 2 --minutes 10

Each seed takes at most so many minutes. A line of counts is printed for each seed, and one for all;
`--add FILE` adds them to those of earlier calls. Without pyarrow, trials that need it are left out
and named. The exit code is 1 if anything was lost, or any damage was accepted silently; the
folders of those trials are kept.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

INSIDE = "MOML_CHAOS_DISK"  # the file system of our own, once there is one
MODULES = (
    "cli.after", "cli.configured", "cli.runs", "cli.tables", "report.page.document",
    "report.terminal", "runs.score", "runs.sweeps", "serving.export", "serving.forget",
    "tabular.continuation", "tabular.train",
)  # fmt: skip
BATCH, FEW = 100, 15  # damaged files in a trial; in the short form one of each kind
ORDER = ("trials", "kills", "kills at a write", "full disks", "full disks of a size",
         "second processes", "clocks that jumped", "damaged files", "refused", "said", "harmless",
         "lost", "accepted silently")  # fmt: skip


def main() -> None:
    """Run the seeds, and print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--short", action="store_true", help="each kind of trial once, no tables")
    parser.add_argument("--home", type=Path, help="folder that keeps what the trials are made on")
    parser.add_argument("--add", type=Path, help="file of counts to add to")
    given = parser.parse_args()
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    own_disk()
    root = Path(tempfile.mkdtemp(prefix="moml-chaos-"))
    home = given.home or root
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": str(home / "compiled"), "MOML_CACHE": "off"}
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    for name in MODULES:  # before all forks
        import_module(f"moml.{name}")
    from tests.chaos.damages import caches
    from tests.chaos.made import forked, make

    make(home, short=given.short)
    if not (home / "made" / "programs").exists():
        forked(lambda: caches(home / "made"))
    if without := left_out(home / "made", short=given.short):
        print(f"left out: {without}", flush=True)
    if home != root:
        shutil.copytree(home / "made", root / "made")
    total: Counter[str] = Counter()
    for seed in given.seeds:
        began = time.monotonic()
        counts = one_seed(root, home, seed, 60 * given.minutes, short=given.short)
        total += counts
        if given.add:
            old = json.loads(given.add.read_text()) if given.add.exists() else {}
            given.add.write_text(json.dumps(Counter(old) + counts) + "\n")
        print(f"seed {seed}, {time.monotonic() - began:.0f} s: {line(counts)}", flush=True)
    print(f"all: {line(total)}")
    if given.add:
        print(f"{given.add}: {line(Counter(json.loads(given.add.read_text())))}")
    if total["lost"] or total["accepted silently"]:
        sys.exit(f"chaos: see {root}")
    shutil.rmtree(root)


def left_out(made: Path, *, short: bool) -> str:
    """The trials that cannot be made here: no pyarrow, or no table to make them on."""
    from tests.chaos.damages import READERS, readers
    from tests.chaos.trials import COMMANDS, SHORT, commands

    without = [name for name in (SHORT if short else COMMANDS) if name not in commands(made)]
    if not short:
        without += [f"damage, {name}" for name in READERS if name not in readers(made)]
    return "; ".join(without)


def line(counts: Counter[str]) -> str:
    """The counts in words."""
    return ", ".join(f"{counts[name]} {name}" for name in ORDER)


def own_disk() -> None:
    """Begin again with a small file system of our own, where the kernel gives one."""
    if INSIDE in os.environ:
        return
    disk = tempfile.mkdtemp(prefix="moml-disk-")
    mount = f'mount -t tmpfs -o size=256m none {disk} && "$@"'
    enter = ["unshare", "-rm", "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*enter, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        os.environ[INSIDE] = ""
        return
    os.environ[INSIDE] = disk
    words = [sys.executable, "-W", "ignore", "-m", "tests.chaos.run", *sys.argv[1:]]
    done = subprocess.run([*enter, *words])
    os.rmdir(disk)
    sys.exit(done.returncode)


def one_seed(root: Path, home: Path, seed: int, seconds: float, *, short: bool) -> Counter[str]:
    """Trials until the time is over; in the short form, each kind once."""
    from tests.chaos.trials import QUICK, SHORT, SLOW, Trials, commands

    rng, counts, deadline = random.Random(seed), Counter(), time.monotonic() + seconds
    disk = Path(os.environ[INSIDE]) if os.environ[INSIDE] else None
    trials = Trials(root, home, rng, counts, disk)
    trials.most = 2 if short else trials.most
    names = [name for name in commands(root / "made") if not short or name in SHORT]
    often = lambda name: 1 if short or name in SLOW else 4 if name in QUICK else 2
    kinds = [(trials.kill, name) for name in names for _ in range(often(name))]
    few = rng.sample(names, 2) if short else names
    kinds += [(trials.fill, name) for name in few] + [(trials.beside, name) for name in few]
    kinds += [(None, "")] * (1 if short else 5)
    deck: list = []
    while time.monotonic() < deadline and (deck or not short or not counts["trials"]):
        deck = deck or rng.sample(kinds, len(kinds))
        trial, name = deck.pop()
        counts["trials"] += 1
        if trial is None:
            _damages(root, rng.randrange(10**9), deadline, counts, short=short)
        elif problem := trial(name):
            counts["lost"] += 1
            kept = root / f"lost-{seed}-{counts['trials']}"
            for place in filter(Path.is_dir, (root / "trial", (disk or root) / "trial")):
                shutil.copytree(place, kept, dirs_exist_ok=True)
            print(f"seed {seed}, trial {counts['trials']}, {name}: {problem}", flush=True)
    return counts


def _damages(root: Path, seed: int, deadline: float, counts: Counter[str], *, short: bool) -> None:
    """Damaged files, read in a process of their own."""
    from tests.chaos.damages import damaged
    from tests.chaos.made import forked

    out, left = root / "damages.json", deadline - time.monotonic()
    forked(lambda: damaged(root, seed, FEW if short else BATCH, left, out))
    found = json.loads(out.read_text())
    for name, count in found["counts"].items():
        counts[name] += count
        counts["damaged files"] += count
    for problem in found["problems"]:
        silent = problem.endswith("silently")
        counts["accepted silently" if silent else "lost"] += 1
        counts["damaged files"] += silent  # the others count as refused
        print(problem, flush=True)


if __name__ == "__main__":
    main()
