"""Pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moml.errors import ConfigError

PALETTE = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b39700", "#7f3c8d",
    "#117733", "#882255",
)  # fmt: skip
COLOURS = dict(
    zip(
        ("maml", "moml-v1", "moml", "nasa", "moml-v2", "localmoml", "reptile", "bspiderboost",
         "moml-searched", "joint"),
        PALETTE,
        strict=True,
    )
) | {"untrained": "#777777"}  # fmt: skip


def pyplot() -> Any:
    """Matplotlib, drawing to files."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError('pictures need matplotlib: pip install "moml[report]"') from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def curves_and_fits(
    curves: Mapping[str, Sequence[tuple[int, np.ndarray]]],
    flat: Mapping[str, float],
    fits: Mapping[str, np.ndarray],
    example: Any,
    path: Path,
) -> Path:
    """Left: error against iterations, a band over seeds. Right: one unseen task, adapted to."""
    plt = pyplot()
    colour = COLOURS
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for label, value in flat.items():
        left.axhline(value, color=colour[label], linestyle=":", label=label)
    for label, curve in curves.items():
        steps = [step for step, _ in curve]
        errors = np.stack([error for _, error in curve])
        left.plot(steps, np.nanmean(errors, axis=1), color=colour[label], label=label)
        low, high = np.nanmin(errors, axis=1), np.nanmax(errors, axis=1)
        left.fill_between(steps, low, high, color=colour[label], alpha=0.2, linewidth=0)
    left.set(xlabel="iterations", ylabel="error on 500 unseen tasks", yscale="log")
    left.set_title("after 10 steps on 10 samples; bands: all seeds", fontsize=10)
    left.legend(frameon=False)
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("{x:g}")
    x = example.x[:, 0]
    right.plot(x, example.y[:, 0], color="black", linewidth=1, label="the task")
    for label, fit in fits.items():
        right.plot(x, fit, color=colour[label], linewidth=1.4, label=label)
    support = example.support
    right.plot(support.x[:, 0], support.y[:, 0], "k.", markersize=8, label="its 10 samples")
    right.set(xlabel="x", ylabel="y")
    right.set_title("one unseen task, adapted to", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    return save(figure, path)


def save(figure: Any, path: Path) -> Path:
    """Write PNG and SVG, and say where the PNG is."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    for suffix in (".svg", ".png"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    pyplot().close(figure)
    return path.with_suffix(".png")


def learning_curves(
    panels: Mapping[str, Mapping[str, Sequence[tuple[int, np.ndarray]]]], path: Path
) -> Path:
    """The objective against samples drawn: a panel a K, a line a method, a band over seeds."""
    figure, row = pyplot().subplots(
        1, len(panels), figsize=(5.5 * len(panels), 4.2), layout="constrained", squeeze=False
    )
    for axes, (title, curves) in zip(row[0], panels.items(), strict=True):
        for label, curve in curves.items():
            colour = COLOURS[label]
            samples = [drawn for drawn, _ in curve]
            values = np.stack([value for _, value in curve])
            axes.plot(samples, np.nanmean(values, axis=1), color=colour, label=label)
            low, high = np.nanmin(values, axis=1), np.nanmax(values, axis=1)
            axes.fill_between(samples, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(xlabel="samples drawn", ylabel="objective F, 25 training tasks", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_title(title, fontsize=10)
        axes.legend(frameon=False, fontsize=8)
    return save(figure, path)


def fitted_curves(
    panels: Mapping[str, Mapping[str, np.ndarray]], waves: tuple[Any, Any], path: Path
) -> Path:
    """Five unseen tasks across, a row a K: the wave, its few samples, every method's fit."""
    few, many = waves
    figure, grid = pyplot().subplots(
        len(panels), 5, figsize=(15, 3 * len(panels)), layout="constrained", squeeze=False
    )
    for row, (title, fits) in zip(grid, panels.items(), strict=True):
        for i, axes in enumerate(row):
            x = many.x[i, :, 0]
            axes.plot(x, many.y[i, :, 0], color="black", linewidth=1, label="the task")
            for label, fit in fits.items():
                axes.plot(x, fit[i], color=COLOURS[label], linewidth=1.1, label=label)
            axes.plot(few.x[i, :, 0], few.y[i, :, 0], "k.", markersize=6)
        row[0].set_ylabel(title)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return save(figure, path)
