"""Error over beta x shots as a heat map with the matching rule drawn across it, and in words."""

from pathlib import Path
from typing import Any

import numpy as np

from moml.paper.shots import verdict as judge
from moml.report.figures import pyplot, save


def shots_figure(surfaces: list[Any], shots: tuple[int, ...], path: Path) -> Path:
    """A panel a K and noise; colour is the excess over the best beta for that many shots."""
    noises = sorted({found.place.noise for found in surfaces})
    ks = sorted({found.place.k for found in surfaces})
    plt = pyplot()
    figure, grid = plt.subplots(
        len(noises), len(ks), figsize=(4.4 * len(ks), 3.6 * len(noises)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for found in surfaces:
        axes = grid[noises.index(found.place.noise), ks.index(found.place.k)]
        error = found.best[:, :, 0]
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
        rule = [judge.bare(found, s) for s in shots]
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
        axes.set_title(f"K = {found.place.k}, label noise {found.place.noise:g}", fontsize=10)
        axes.set(xlabel="shots at test", ylabel="β (1 is MAML)")
    grid[0, 0].legend(loc="lower left", fontsize=7)
    figure.colorbar(image, ax=grid, label="% above the best β's error", shrink=0.7)
    return save(figure, path)


def print_verdicts(surfaces: list[Any], plan: Any) -> None:
    """How far each way to choose beta is from the best one, and where the floor lies."""
    groups: dict[tuple[str, int, int], list[Any]] = {}
    for found in surfaces:
        place = found.place
        groups.setdefault((place.family, place.n, place.iterations), []).append(found)
    for (name, n, iterations), mine in groups.items():
        print(f"{name}, n = {n}, {iterations} iterations: per cent above the best beta's error")
        for verdict in judge.verdicts(mine, plan):
            print(
                f"  {verdict.steps:2} steps  {verdict.name:<14} mean {verdict.mean:6.1f}  worst "
                f"{verdict.worst:5.0f}   ({verdict.cells} cells)"
            )
    for noise in sorted({found.place.noise for found in surfaces}):
        for family in dict.fromkeys(found.place.family for found in surfaces):
            mine = [f for f in surfaces if (f.place.noise, f.place.family) == (noise, family)]
            print(f"{family}, label noise {noise:g}: the same for the rule to the power of")
            print(" " * 10 + "".join(f"{power:7}" for power in judge.POWERS))
            for steps, line in judge.powers(mine, plan):
                print(f"  {steps:2} steps" + "".join(f"{value:7.1f}" for value in line))
    for found in surfaces:
        if (found.place.family, found.place.k, found.place.noise) == ("sine", 1, 0.0):
            print(f"the floor, 50 shots, n = {found.place.n}, {found.place.iterations} iterations:")
            for eta, best, error, least in judge.floors(found):
                print(f"  eta {eta:<7g} best beta {best:<7g} (error {error:.3f}), 10 % {least:g}")
