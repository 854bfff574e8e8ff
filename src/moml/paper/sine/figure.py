"""Pictures of sine regression: learning curves, and unseen waves that were adapted to."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from moml.paper.cells import Curve
from moml.paper.figures import band, panels
from moml.report.figures import COLOURS, save
from moml.types import Batch

Waves = tuple[Batch, Batch]  # the samples adapted on, and the waves


def curves_and_fits(
    curves: Mapping[str, Curve],
    flat: Mapping[str, float],
    fits: Mapping[str, np.ndarray],
    waves: Waves,
    path: Path,
) -> Path:
    """Left: error against iterations, a band over seeds. Right: one unseen task, adapted to."""
    figure, ((left, right),) = panels(1, 2, (11, 4.2))
    for label, value in flat.items():
        left.axhline(value, color=COLOURS[label], linestyle=":", label=label)
    for label, curve in curves.items():
        band(left, curve, COLOURS[label], label, alpha=0.2)
    left.set(xlabel="iterations", ylabel="error on 500 unseen tasks", yscale="log")
    left.set_title("after 10 steps on 10 samples; bands: all seeds", fontsize=10)
    left.legend(frameon=False)
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("{x:g}")
    few, many = waves
    x = many.x[0, :, 0]
    right.plot(x, many.y[0, :, 0], color="black", linewidth=1, label="the task")
    for label, fit in fits.items():
        right.plot(x, fit[0], color=COLOURS[label], linewidth=1.4, label=label)
    right.plot(few.x[0, :, 0], few.y[0, :, 0], "k.", markersize=8, label="its 10 samples")
    right.set(xlabel="x", ylabel="y")
    right.set_title("one unseen task, adapted to", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    return save(figure, path)


def learning_curves(curves: Mapping[str, Mapping[str, Curve]], path: Path) -> Path:
    """The objective against samples drawn: a panel a K, a line a method, a band over seeds."""
    figure, (row,) = panels(1, len(curves), (5.5 * len(curves), 4.2))
    for axes, (title, of_method) in zip(row, curves.items(), strict=True):
        for label, curve in of_method.items():
            band(axes, curve, COLOURS[label], label)
        axes.set(xlabel="samples drawn", ylabel="objective F, 25 training tasks", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_title(title, fontsize=10)
        axes.legend(frameon=False, fontsize=8)
    return save(figure, path)


def fitted_curves(fits: Mapping[str, Mapping[str, np.ndarray]], waves: Waves, path: Path) -> Path:
    """Five unseen tasks across, a row a K: the wave, its few samples, every method's fit."""
    few, many = waves
    figure, grid = panels(len(fits), 5, (15, 3 * len(fits)))
    for row, (title, of_method) in zip(grid, fits.items(), strict=True):
        for i, axes in enumerate(row):
            x = many.x[i, :, 0]
            axes.plot(x, many.y[i, :, 0], color="black", linewidth=1, label="the task")
            for label, fit in of_method.items():
                axes.plot(x, fit[i], color=COLOURS[label], linewidth=1.1, label=label)
            axes.plot(few.x[i, :, 0], few.y[i, :, 0], "k.", markersize=6)
        row[0].set_ylabel(title)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return save(figure, path)
