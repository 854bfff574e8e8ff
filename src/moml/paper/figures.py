"""Parts of the paper's figures: panels, bands, heat maps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from moml.paper.cells import Curve, Number
from moml.report.figures import Axes, Figure, pyplot


def panels(
    rows: int, columns: int, size: tuple[Number, Number], **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure with rows x columns axes."""
    return pyplot().subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, **options
    )


def band(
    axes: Axes, curve: Curve, colour: str, label: str, *, alpha: float = 0.15, **line: Any
) -> None:
    """The mean over seeds as a line, in a band from the least to the largest."""
    x, values = [at for at, _ in curve], np.stack([value for _, value in curve])
    axes.plot(x, np.nanmean(values, axis=1), color=colour, label=label, **line)
    if alpha:
        low, high = np.nanmin(values, axis=1), np.nanmax(values, axis=1)
        axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0)


def heat_map(
    axes: Axes, values: Float[np.ndarray, "betas shots"], betas: Sequence[Number] | np.ndarray,
    shots: Sequence[int], rule: Sequence[Number], *, most: Number, texts: np.ndarray,
    fontsize: Number = 7,
) -> object:  # fmt: skip
    """`values` over beta (descending) and shots, with the matching rule drawn across."""
    image = axes.imshow(
        np.minimum(values, most), cmap="viridis_r", vmin=0, vmax=most, aspect="auto"
    )
    for (b, s), value in np.ndenumerate(values):
        colour = "w" if value > most / 2 else "k"
        axes.text(s, b, texts[b, s], ha="center", va="center", fontsize=fontsize, color=colour)
    heights = np.interp(np.log(rule), np.log(betas[::-1]), np.arange(len(betas))[::-1])
    axes.plot(
        range(len(shots)), heights, "o-", color="#d55e00", markersize=13, markerfacecolor="none",
        label="rule",
    )  # fmt: skip
    axes.set_xticks(range(len(shots)), [str(s) for s in shots])
    axes.set_yticks(range(len(betas)), [f"{b:.2g}" for b in betas], fontsize=7)
    return image
