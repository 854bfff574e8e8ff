"""What all pictures share: colours, Matplotlib, panels, bands over seeds, heat maps, files."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

from moml.atomic import SHARED
from moml.errors import ConfigError
from moml.storage.files import write_bytes

Axes = Any  # Matplotlib's, which is imported only when a picture is drawn
Figure = Any
Number = int | float
Curve = Sequence[tuple[Number, np.ndarray]]  # abscissa, one value a seed

PALETTE = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b39700", "#7f3c8d",
    "#117733", "#882255",
)  # fmt: skip
METHODS = (
    "maml", "moml-v1", "moml", "nasa", "moml-v2", "localmoml", "reptile", "bspiderboost",
    "moml-searched", "joint",
)  # fmt: skip
COLOURS = dict(zip(METHODS, PALETTE, strict=True)) | {"untrained": "#777777"}


def pyplot() -> ModuleType:
    """Matplotlib, drawing to files."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError('pictures need matplotlib: pip install "moml[report]"') from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Figure, path: Path) -> Path:
    """Write PNG and SVG; return the path of the PNG."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    for suffix in (".svg", ".png"):
        drawn = BytesIO()
        figure.savefig(drawn, dpi=150, format=suffix[1:])
        write_bytes(drawn.getvalue(), path.with_suffix(suffix), SHARED)
    pyplot().close(figure)
    return path.with_suffix(".png")


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
