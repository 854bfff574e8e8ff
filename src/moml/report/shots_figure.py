"""The heat map: error over beta x shots, with the matching rule drawn across it."""

from pathlib import Path
from typing import Any

import numpy as np

from moml.algorithms.matching import match_beta
from moml.report.figures import pyplot, save


def shots_figure(surfaces: list[Any], shots: tuple[int, ...], path: Path) -> Path:
    """A panel a K and noise; colour is the excess over the best beta for that many shots."""
    noises = sorted({found.noise for found in surfaces})
    ks = sorted({found.k for found in surfaces})
    plt = pyplot()
    figure, grid = plt.subplots(
        len(noises), len(ks), figsize=(4.4 * len(ks), 3.6 * len(noises)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for found in surfaces:
        axes = grid[noises.index(found.noise), ks.index(found.k)]
        error = found.errors[:, :, 0]
        over = 100 * (error / error.min(axis=0) - 1)
        image = axes.imshow(
            np.minimum(over, 100), cmap="viridis_r", vmin=0, vmax=100, aspect="auto"
        )
        for (b, s), value in np.ndenumerate(over):
            text = "best" if value == 0 else ">999" if value > 999 else f"{value:.0f}"
            dark = value > 50
            axes.text(
                s, b, text, ha="center", va="center", fontsize=6.5, color="w" if dark else "k"
            )
        rows = np.log(found.betas[::-1])
        place = np.arange(len(rows))[::-1]
        rule = [match_beta(found.k, s, floor=0.0) for s in shots]
        y = np.interp(np.log(rule), rows, place)
        axes.plot(
            range(len(shots)),
            y,
            "o-",
            color="#d55e00",
            markersize=13,
            markerfacecolor="none",
            label="rule",
        )
        axes.set_xticks(range(len(shots)), [str(s) for s in shots])
        axes.set_yticks(range(len(found.betas)), [f"{b:.2g}" for b in found.betas], fontsize=7)
        axes.set_title(f"K = {found.k}, label noise {found.noise:g}", fontsize=10)
        axes.set(xlabel="shots at test", ylabel="β (1 is MAML)")
    grid[0, 0].legend(loc="lower left", fontsize=7)
    figure.colorbar(image, ax=grid, label="% above the best β's error", shrink=0.7)
    return save(figure, path)
