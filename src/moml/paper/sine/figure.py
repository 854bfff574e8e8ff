"""Pictures of sine regression: learning curves, and unseen waves that were adapted to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moml.paper.sine.score import example_waves, fitted
from moml.paper.sine.table import Outcome
from moml.report.figures import COLOURS, Axes, Curve, band, legend_below, panels, save
from moml.types import Batch

Waves = tuple[Batch, Batch]  # the samples adapted on, and the waves
Fits = Mapping[str, np.ndarray]  # by method, [tasks, points]


def draw_fits(axes: Axes, waves: Waves, i: int, fits: Fits, width: float, **samples: Any) -> None:
    """The wave of task i, every method's fit, and the samples adapted on."""
    few, many = waves
    x = many.x[i, :, 0]
    axes.plot(x, many.y[i, :, 0], color="black", linewidth=1, label="the task")
    for label, fit in fits.items():
        axes.plot(x, fit[i], color=COLOURS[label], linewidth=width, label=label)
    axes.plot(few.x[i, :, 0], few.y[i, :, 0], "k.", **samples)


def curves_and_fits(
    curves: Mapping[str, Curve], flat: Mapping[str, float], fits: Fits, waves: Waves, path: Path
) -> Path:
    """Left: error against iterations, a band over seeds. Right: one unseen task, adapted to."""
    figure, ((left, right),) = panels(1, 2, (11, 4.2))
    for label, value in flat.items():
        left.axhline(value, color=COLOURS[label], linestyle=":", label=label)
    for label, curve in curves.items():
        band(left, curve, COLOURS[label], label, alpha=0.2)
    left.set(xlabel="iterations", ylabel="error on 500 unseen tasks", yscale="log")
    left.set_title("after 10 steps on 10 samples; bands: all seeds")
    draw_fits(right, waves, 0, fits, 1.4, markersize=8, label="its 10 samples")
    right.set(xlabel="x", ylabel="y")
    right.set_title("one unseen task, adapted to")
    legend_below(figure, (left, right))
    return save(figure, path)


def table_figures(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Both pictures of a protocol's table, a row or column of panels a K."""
    by_k: dict[int, list[Outcome]] = {}
    for one in outcomes:
        by_k.setdefault(one.cell.k, []).append(one)
    of = outcomes[0].cell.protocol
    both = {"objective": learning_curves, "fitted": fitted_curves}
    return [draw(by_k, folder / f"{name}-{of}") for name, draw in both.items()]


def learning_curves(by_k: Mapping[int, Sequence[Outcome]], path: Path) -> Path:
    """The objective against samples drawn: a panel a K, a line a method, a band over seeds."""
    figure, (row,) = panels(1, len(by_k), (5.5 * len(by_k), 4.2))
    for axes, (k, outcomes) in zip(row, by_k.items(), strict=True):
        for one in outcomes:
            if one.curve:
                band(axes, one.curve, COLOURS[one.cell.method], one.cell.method)
        axes.set(xlabel="samples drawn", ylabel="objective F, 25 training tasks", yscale="log")
        axes.set_title(f"K = {k}")
    legend_below(figure, row)
    return save(figure, path)


def fitted_curves(by_k: Mapping[int, Sequence[Outcome]], path: Path) -> Path:
    """Five unseen tasks across, a row a K: the wave, its few samples, every method's fit."""
    waves = example_waves()
    figure, grid = panels(len(by_k), 5, (15, 3 * len(by_k)))
    for row, (k, outcomes) in zip(grid, by_k.items(), strict=True):
        fits = {one.cell.method: fitted(one.run, waves) for one in outcomes}
        for i, axes in enumerate(row):
            draw_fits(axes, waves, i, fits, 1.1, markersize=6)
        row[0].set_ylabel(f"K = {k}")
    legend_below(figure, grid.flat)
    return save(figure, path)
