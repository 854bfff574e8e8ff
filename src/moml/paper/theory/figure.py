"""The picture of the theorem's measurement: the gap on the way, and where it ends."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from moml.paper.theory.study import Measured
from moml.report.figures import COLOURS, PALETTE, legend_below, panels, save

LOOKS = {  # a method's colour is that of all pictures; broken where beta does not follow eta
    "maml": (COLOURS["maml"], "-", "s"),
    "moml-v1": (COLOURS["moml-v1"], "--", "o"),
    "moml-v1-scheduled": (COLOURS["moml-v1"], "-", "o"),
    "moml-v2": (COLOURS["moml-v2"], "--", "^"),
    "moml-v2-theorem": (COLOURS["moml-v2"], "-", "^"),
    "maml-theorem": (COLOURS["maml"], ":", "s"),
    "scgd": (PALETTE[2], "-", "D"),
    "nasa": (COLOURS["nasa"], ":", "v"),
    "localmoml": (COLOURS["localmoml"], "-.", "X"),
}
PANELS = {"independent": "S2 independent of S1 (the paper)", "shared": "S2 = S1 (common practice)"}


def theory_figure(measured: Sequence[Measured], path: Path) -> Path:
    """One column per S2. Above: the gap on the way, at the smallest eta. Below: where it ends.

    Both show |grad F|^2 at the average of the last quarter of the steps, mean over the seeds that
    were not lost.
    """
    figure, grid = panels(2, 2, (11, 8), sharex="row", sharey=True)
    etas = sorted({m.eta for m in measured})
    smallest = etas[0]
    for column, (s2, title) in enumerate(PANELS.items()):
        way, end = grid[:, column]
        way.set_title(title)
        for label, (colour, dashes, mark) in LOOKS.items():
            mine = [m for m in measured if m.s2 == s2 and m.line.label == label]
            look = {"color": colour, "linestyle": dashes, "linewidth": 1.7}
            for m in mine:
                if m.eta == smallest:
                    way.plot(m.samples, _over_seeds(m.curve), **look)
            floors = [(m.eta, _over_seeds(m.curve)[-1]) for m in mine]
            if floors:
                end.plot(*np.transpose(floors), marker=mark, markersize=6, label=label, **look)
        way.set(xlabel=f"samples drawn (eta = {smallest:g})", xscale="log", yscale="log")
        end.set(xlabel="eta (with all n tasks at once: times n / B)", xscale="log")
        end.set_xticks(etas, [f"{eta:g}" for eta in etas])
        end.minorticks_off()
        for axes in (way, end):
            axes.grid(axis="y")
    grid[1, 0].invert_xaxis()  # shared: smaller steps to the right in both
    grid[0, 0].set_ylabel("|grad F|² at the average, on the way")
    grid[1, 0].set_ylabel("|grad F|² at the average, at the end")
    legend_below(figure, grid[1])
    return save(figure, path)


def _over_seeds(curve: np.ndarray) -> np.ndarray:
    """The mean over the seeds that end with a finite number: [points, seeds] -> [points]."""
    kept = curve[:, np.isfinite(curve[-1])]
    return kept.mean(axis=1) if kept.size else np.full(len(curve), np.nan)
