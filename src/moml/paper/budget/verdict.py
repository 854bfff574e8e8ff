"""What the rows show: memory against none at equal samples, and the regret of beta = auto."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from moml.paper.budget.study import Equal
from moml.report.figures import panels, save
from moml.report.terminal import mean_std, print_table
from moml.types import Record


def cell_of(row: Record) -> tuple[str, int, int]:
    """Family, steps and shots."""
    return row["dataset"], row["setting"]["steps"], row["setting"]["shots"]


def best_of(rows: Sequence[Record], by: str = "mean") -> Record | None:
    """The row with the best mean, or the best by another column; None without any."""
    known = [row for row in rows if None not in (row["mean"], row[by])]
    sign = -1 if known and known[0]["metric"] == "test_accuracy" else 1
    return min(known, key=lambda row: sign * row[by], default=None)


class Comparison(NamedTuple):
    """The rows of a cell that are best on the tuning tasks, without memory, and with one: at K = 1,
    and at any K."""

    without: Record | None
    smallest: Record | None
    memory: Record | None


def comparisons(rows: Sequence[Record]) -> Iterator[Comparison]:
    """For each family, steps and shots, over K and beta."""
    fixed = sorted((row for row in rows if row["protocol"] == "strict"), key=cell_of)
    for _, group in itertools.groupby(fixed, cell_of):
        mine = list(group)
        least = min(row["setting"]["k"] for row in mine)
        memory = [row for row in mine if row["setting"]["beta"] < 1]
        small = [row for row in memory if row["setting"]["k"] == least]
        without = [row for row in mine if row["setting"]["beta"] == 1]
        yield Comparison(*(best_of(some, "tuning") for some in (without, small, memory)))


EQUAL = {"samples": "samples (K T)", "work": "work (T steps)", "steps": "steps (T)"}


def print_budget(rows: Sequence[Record], equal: Equal = "samples") -> None:
    """A line a family, steps and shots; the iterations of each K."""
    columns = ["family", "steps", "shots", "no memory", "K", "memory, least K", "K", "beta"]
    columns += ["memory, any K", "K", "beta"]
    lines = []
    for found in comparisons(rows):
        without, smallest, memory = found
        if without is None or smallest is None or memory is None:
            continue
        form = ".1f" if without["metric"] == "test_accuracy" else ".3f"
        say = lambda row, form=form: mean_std(row["mean"], row["std"], form)
        line = [*cell_of(without), say(without), without["setting"]["k"]]
        for row in (smallest, memory):
            line += [say(row), row["setting"]["k"], f"{row['setting']['beta']:g}"]
        lines.append(line)
    title = f"Equal {EQUAL[equal]}: error, or accuracy in percent; eta, K and beta by tuning tasks"
    print_table(title, columns, lines, no_wrap=columns)
    for name in dict.fromkeys(row["dataset"] for row in rows):
        counts = {r["setting"]["k"]: r["iterations"] for r in rows if r["dataset"] == name}
        print(f"{name}: T = " + ", ".join(f"{t:,} at K = {k}" for k, t in sorted(counts.items())))


class Regret(NamedTuple):
    """A cell of beta = auto: how much worse than the best fixed beta, and than beta = 1."""

    row: Record
    best: Record
    over_best: float  # per cent of an error, or points of an accuracy
    over_one: float


def regrets(rows: Sequence[Record]) -> Iterator[Regret]:
    """Every cell of auto, beside the fixed values of beta at the same K and eta."""
    for row in (row for row in rows if row["setting"]["beta"] == "auto"):
        same = ("k", "eta", "shots", "steps")
        mine = [
            other for other in rows
            if other["setting"]["beta"] != "auto" and other["protocol"] == row["protocol"]
            and other["dataset"] == row["dataset"]
            and all(other["setting"][name] == row["setting"][name] for name in same)
        ]  # fmt: skip
        best = best_of(mine)
        one = next((other for other in mine if other["setting"]["beta"] == 1), None)
        if best is None or one is None or None in (one["mean"], row["mean"]):
            continue
        if row["metric"] == "test_accuracy":
            over = [other["mean"] - row["mean"] for other in (best, one)]
        else:
            over = [100 * (row["mean"] / other["mean"] - 1) for other in (best, one)]
        yield Regret(row, best, *over)


def print_regrets(rows: Sequence[Record]) -> None:
    """A line a cell, and the mean and the worst of a family."""
    family = lambda one: (one.row["dataset"], one.row["metric"])
    for (name, metric), group in itertools.groupby(regrets(rows), family):
        mine = list(group)
        points = metric == "test_accuracy"
        unit, form = ("points", ".1f") if points else ("per cent", ".3f")
        lines = [
            (*(one.row["setting"][n] for n in ("k", "steps", "shots")),
             mean_std(one.row["mean"], one.row["std"], form),
             " ".join(f"{beta:.2g}" for beta in one.row["setting"]["chosen"]),
             mean_std(one.best["mean"], one.best["std"], form), f"{one.best['setting']['beta']:g}",
             f"{one.over_best:.1f}", f"{one.over_one:.1f}")
            for one in mine
        ]  # fmt: skip
        title = f"beta = auto, {name}; excess in {unit}, over the best fixed beta and over beta = 1"
        columns = ["K", "steps", "shots", "auto", "chosen", "best fixed", "beta"]
        columns += ["excess", "over 1"]
        print_table(title, columns, lines, no_wrap=columns)
        over = np.array([(one.over_best, one.over_one) for one in mine])
        print(
            f"{name}: mean excess {over[:, 0].mean():.1f} {unit} over {len(mine)} cells, worst "
            f"{over[:, 0].max():.1f}; worst against beta = 1 {over[:, 1].max():.1f}"
        )


def budget_figure(rows: Sequence[Record], path: Path) -> Path:
    """A panel a family and number of steps: the best score over shots, with and without memory."""
    fixed = [row for row in rows if row["protocol"] == "strict"]
    names = list(dict.fromkeys(row["dataset"] for row in fixed))
    steps = sorted({row["setting"]["steps"] for row in fixed})
    figure, grid = panels(len(names), len(steps), (4.6 * len(steps), 3.2 * len(names)))
    for line, name in zip(grid, names, strict=True):
        for axes, step in zip(line, steps, strict=True):
            mine = [r for r in fixed if (r["dataset"], r["setting"]["steps"]) == (name, step)]
            for label, kind in (("no memory, best K", 0), ("least K, with memory", 1)):
                found = [c[kind] for c in comparisons(mine) if c[kind] is not None]
                points = [(r["setting"]["shots"], r["mean"], r["std"]) for r in found if r]
                if points:
                    x, y, error = zip(*points, strict=True)
                    axes.errorbar(x, y, error, marker="o", capsize=2, label=label)
            higher = mine and mine[0]["metric"] == "test_accuracy"
            axes.set(xlabel="shots at test", ylabel="accuracy, %" if higher else "error")
            axes.set_xscale("log")
            axes.set_yscale("linear" if higher else "log")
            axes.set_title(f"{name}, {step} {'step' if step == 1 else 'steps'}", fontsize=10)
    grid[0, 0].legend(fontsize=8)
    return save(figure, path)
