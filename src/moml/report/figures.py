"""Pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moml.errors import ConfigError

PALETTE = ("#777777", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")


def _pyplot() -> Any:
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
    plt = _pyplot()
    colour = dict(zip(fits, PALETTE, strict=False))
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
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    for suffix in (".svg", ".png"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)
    return path.with_suffix(".png")
