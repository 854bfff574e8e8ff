"""Pictures of the leaderboard: accuracies, curves over rounds, ranks under two protocols."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from moml.report.figures import PALETTE, Axes, Figure, legend_below, panels, save
from moml.types import Record

Ranked = Mapping[str, Record]  # by method


def _in_pairs(count: int, wide: float, high: float) -> tuple[Figure, list[Axes]]:
    """`count` panels of this size, two in a line."""
    columns, lines = min(2, count), -(-count // 2)
    figure, grid = panels(lines, columns, (wide * columns + 0.6, high * lines))
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, [*grid.flat[:count]]


def accuracy_figure(tables: Mapping[str, Ranked], path: Path) -> Path:
    """Accuracy of every method, a panel a table, in descending order; printed figures as marks."""
    figure, places = _in_pairs(len(tables), 5.2, 4.6)
    for axes, (title, rows) in zip(places, tables.items(), strict=True):
        order = sorted(rows, key=lambda name: rows[name]["mean"])
        means = [rows[name]["mean"] for name in order]
        axes.barh(range(len(order)), means, color=PALETTE[0], height=0.6)
        known = [
            (rows[name]["paper_mean"], i)
            for i, name in enumerate(order)
            if rows[name]["paper_mean"] is not None
        ]
        if known:
            axes.plot(*zip(*known, strict=True), "D", color=PALETTE[1], label="printed")
        axes.set_yticks(range(len(order)), order, fontsize=8)
        axes.set(xlabel="accuracy, %", title=title)
    legend_below(figure, places)
    return save(figure, path)


def curves_figure(tables: Mapping[str, Ranked], path: Path) -> Path:
    """Test accuracy over rounds, a line a method, its name beside it; a panel a table."""
    figure, places = _in_pairs(len(tables), 5.8, 5.0)
    names = list(dict.fromkeys(name for rows in tables.values() for name in rows))
    for axes, (title, rows) in zip(places, tables.items(), strict=True):
        ends = []
        for name, row in rows.items():
            i = names.index(name)
            colour, dashes = PALETTE[i % len(PALETTE)], "-" if i < len(PALETTE) else "--"
            rounds, means = row["curve"]["rounds"], np.mean(row["curve"]["accuracy"], axis=1)
            axes.plot(rounds, means, dashes, color=colour, linewidth=1.3)
            ends.append((float(means[-1]), name, colour))
        low, high = axes.get_ylim()
        ends.sort()
        heights = apart([end[0] for end in ends], (high - low) / 26, high)
        for height, (_, name, colour) in zip(heights, ends, strict=True):
            place = axes.get_yaxis_transform()  # the right edge, in units of the data
            axes.text(1.02, height, name, fontsize=7, color=colour, va="center", transform=place)
        axes.set(xlabel="round", ylabel="test accuracy, %", title=title)
    return save(figure, path)


def apart(heights: list[float], least: float, most: float) -> list[float]:
    """Ascending heights, moved where two are nearer than `least`, at most to `most`.

    >>> apart([1.0, 1.5, 9.0], 1.0, 10.0)
    [1.0, 2.0, 9.0]
    >>> apart([1.0, 9.5, 9.5], 1.0, 10.0)
    [1.0, 9.0, 10.0]
    """
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + least) if moved else height)
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], most if i + 1 == len(moved) else moved[i + 1] - least)
    return moved


def _by_rank(names: list[str], rows: Ranked) -> list[str]:
    return sorted(names, key=lambda name: -rows[name]["mean"])


def ranks_figure(both: Mapping[str, tuple[Ranked, Ranked]], path: Path) -> Path:
    """The rank of each method under `pfllib`, joined to that under `strict`."""
    figure, grid = panels(1, len(both), (4.6 * len(both) + 0.6, 5.2))
    for axes, (title, sides) in zip(grid[0], both.items(), strict=True):
        common = [name for name in sides[0] if name in sides[1]]
        ranks = [_by_rank(common, side) for side in sides]
        for i, name in enumerate(ranks[1]):
            left, right = (rank.index(name) + 1 for rank in ranks)
            axes.plot((0, 1), (left, right), "o-", color=PALETTE[i % len(PALETTE)], markersize=4)
            axes.text(-0.05, left, name, ha="right", va="center", fontsize=8)
            axes.text(1.05, right, name, ha="left", va="center", fontsize=8)
        axes.set(xlim=(-0.9, 1.9), ylim=(len(common) + 0.6, 0.4), title=title, ylabel="rank")
        axes.set_xticks((0, 1), ("pfllib", "strict"))
    return save(figure, path)
