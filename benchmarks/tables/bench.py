"""Real tables of many small groups: moml by its defaults beside what people use instead.

    python benchmarks/tables/bench.py [--tables wagepan ...] [--splits 0 1 2] [--out FILE]

A quarter of the groups is held out; of each the first rows are known and the others predicted.
Every figure is kept in a cache as soon as it is there, so that a run can be stopped and go on.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")  # compiling is most of it

import numpy as np
from ours import OURS
from rivals import RIVALS, loss_of

from tables import DEVELOPMENT, TABLES, Split, split

MODELS = RIVALS | OURS
EVERY = TABLES | DEVELOPMENT
NUMBERS = [name for name, table in EVERY.items() if not table.classes]
CLASSES = [name for name, table in EVERY.items() if table.classes]
Scores = dict[str, dict[str, float]]


def score(s: Split, predicted: np.ndarray) -> dict[str, float]:
    """RMSE over all query rows of the test groups; of classes the log-loss and the accuracy."""
    y = s.y[np.concatenate(s.test.query)]
    if s.classes is None:
        return {"loss": loss_of(s, y, predicted)}
    return {"loss": loss_of(s, y, predicted), "accuracy": float(np.mean((predicted > 0.5) == y))}


def measure(name: str, seed: int, cache: Path, models: list[str]) -> Scores:
    """All models on one split, from the cache where they are in it."""
    file = cache / f"{name}-{seed}.json"
    known: Scores = json.loads(file.read_text()) if file.exists() else {}
    s = None
    for model in models:
        if model in known or (EVERY[name].classes and model == "ridge per group"):
            continue
        s = split(name, seed) if s is None else s
        began = time.monotonic()
        given = MODELS[model](s)
        answers, more = given if isinstance(given, tuple) else (given, {})
        known[model] = score(s, answers) | more | {"seconds": time.monotonic() - began}
        file.write_text(json.dumps(known, indent=1))
        print(f"{name} split {seed} {model}: {known[model]['loss']:.4f}", flush=True)
    return known


def mean(rows: list[Scores], model: str, what: str) -> float:
    """Over all splits, or not a number where one is missing."""
    found = [row.get(model, {}).get(what, math.nan) for row in rows]
    return float(np.mean(found))


def block(title: str, names: list[str], all_rows: dict[str, list[Scores]], what: str) -> list[str]:
    """A table of means over the splits."""
    lines = [title, f"{'':<30}" + "".join(f"{name:>15}" for name in names)]
    for model in MODELS:
        figures = [mean(all_rows[name], model, what) for name in names]
        if not all(map(math.isnan, figures)):
            shown = "".join(f"{'-' if math.isnan(v) else format(v, '.4f'):>15}" for v in figures)
            lines.append(f"{model:<30}{shown}")
    return [*lines, ""]


def recorded(files: list[Path]) -> dict[tuple[str, str], float]:
    """The first figure of each table and rival in earlier outputs: its loss."""
    found: dict[tuple[str, str], float] = {}
    for file in files:
        names: list[str] = []
        for line in file.read_text().splitlines():
            if line.startswith(" " * 20):
                names = line.split()
            figures = line.removeprefix(next((m for m in RIVALS if line.startswith(m)), line))
            for name, figure in zip(names, figures.split(), strict=False):
                if figure != "-":
                    found.setdefault((name, line[: -len(figures)]), float(figure))
    return found


def ratios(
    names: list[str],
    all_rows: dict[str, list[Scores]],
    earlier: dict[tuple[str, str], float],
) -> list[str]:
    """Ours over a rival's, table by table, and the geometric mean."""

    def loss(name: str, model: str) -> float:
        now = mean(all_rows[name], model, "loss")
        return earlier.get((name, model), math.nan) if math.isnan(now) else now

    rival = lambda name: min(RIVALS, key=lambda model: np.nan_to_num(loss(name, model), nan=np.inf))
    against = {"the best rival of each table": {name: rival(name) for name in names}}
    for model in ("GPBoost", "mixed model", "moml, one for all"):
        there = [name for name in names if not math.isnan(loss(name, model))]
        against[model] = dict.fromkeys(there, model)
    lines = []
    for title, rivals in against.items():
        each = {name: loss(name, "moml") / loss(name, model) for name, model in rivals.items()}
        if each:
            overall = math.exp(np.mean(np.log(list(each.values()))))
            shown = ", ".join(f"{name} {value:.3f}" for name, value in each.items())
            lines.append(f"ratio of moml to {title}: {overall:.3f}  ({shown})")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=[*TABLES], choices=[*EVERY])
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--models", nargs="+", default=[*MODELS], choices=[*MODELS])
    parser.add_argument("--cache", type=Path, default=Path(".cache/tables"))
    parser.add_argument(
        "--recorded", nargs="+", type=Path, default=[], help="outputs with rivals not run now"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    rows = {
        name: [measure(name, seed, given.cache, given.models) for seed in given.splits]
        for name in given.tables
    }
    lines = [
        f"means over splits {' '.join(map(str, given.splits))}, by benchmarks/tables/bench.py",
        "",
    ]
    for title, names, what in (
        ("RMSE of the standardised target", NUMBERS, "loss"),
        ("log-loss", CLASSES, "loss"),
        ("accuracy", CLASSES, "accuracy"),
        ("share of rows in intervals of 0.9, mean over test groups", NUMBERS, "coverage"),
    ):
        chosen = [name for name in names if name in given.tables]
        lines += block(title, chosen, rows, what) if chosen else []
        if chosen and what == "loss" and "moml" in given.models:
            lines += ratios(chosen, rows, recorded(given.recorded))
    lines += block("score over the best other of the run's own table", given.tables, rows, "own")
    lines += block("seconds", given.tables, rows, "seconds")
    text = "\n".join(lines)
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
