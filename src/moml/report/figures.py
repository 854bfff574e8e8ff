"""What all pictures share: style, panels, ticks, legends, bands over seeds, heat maps, files."""

from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

from moml.atomic import SHARED
from moml.errors import ConfigError
from moml.report.ticks import Number, decades, short
from moml.storage.files import write_bytes

Axes = Any  # Matplotlib's, which is imported only when a picture is drawn
Figure = Any
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
STYLE = {
    "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "figure.titlesize": 10,
    "legend.fontsize": 8.5, "legend.frameon": False, "lines.linewidth": 1.6,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "grid.color": "0.92", "grid.linewidth": 0.7, "savefig.dpi": 150,
}  # fmt: skip
A_LABEL = 1.5  # inches of a legend's entry
PLAIN = 10_000  # from here on, ticks have labels such as 10k


def pyplot() -> ModuleType:
    """Matplotlib, drawing to files in the style of all pictures."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError('pictures need matplotlib: pip install "moml[report]"') from error
    matplotlib.use("Agg")
    matplotlib.rcParams.update(STYLE)
    from matplotlib import pyplot

    return pyplot


def save(figure: Figure, path: Path) -> Path:
    """Write PNG and SVG; return the path of the PNG."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            _ticks(axis)
    for suffix in (".svg", ".png"):
        drawn = BytesIO()
        figure.savefig(drawn, format=suffix[1:])
        write_bytes(drawn.getvalue(), path.with_suffix(suffix), SHARED)
    pyplot().close(figure)
    return path.with_suffix(".png")


def _ticks(axis: Any) -> None:
    """Labels that do not meet on logarithmic axes, and short ones of large numbers."""
    ticker = pyplot().matplotlib.ticker
    if isinstance(axis.get_major_locator(), ticker.FixedLocator):
        return  # chosen where the picture is drawn
    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() == "log":
        values = decades(low, high)
        axis.set_major_locator(ticker.FixedLocator(values))
        axis.set_major_formatter(ticker.FixedFormatter([short(value) for value in values]))
        axis.set_minor_formatter(ticker.NullFormatter())
    elif high >= PLAIN:
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: short(value)))


def legend_below(figure: Figure, grid: Iterable[Axes]) -> None:
    """One legend of all panels under them, where no curve can be; a label is listed once."""
    found: dict[str, object] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if not found:
        return
    columns = max(1, min(len(found), int(figure.get_figwidth() / A_LABEL)))
    lines = -(-len(found) // columns)
    figure.legend(
        found.values(), found, loc="outside lower center", ncols=-(-len(found) // lines)
    )  # as even as can be


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
    pyplot()
    from matplotlib.patheffects import withStroke

    for (b, s), value in np.ndenumerate(values):
        colour, cell = "w" if value > most / 2 else "k", image.to_rgba(min(value, most))
        axes.text(
            s, b, texts[b, s], ha="center", va="center", fontsize=fontsize, color=colour,
            zorder=3, path_effects=[withStroke(linewidth=2.5, foreground=cell)],  # over the rule
        )  # fmt: skip
    heights = np.interp(np.log(rule), np.log(betas[::-1]), np.arange(len(betas))[::-1])
    axes.plot(
        range(len(shots)), heights, "o-", color="#d55e00", markersize=13, markerfacecolor="none",
        label="rule",
    )  # fmt: skip
    axes.set_xticks(range(len(shots)), [str(s) for s in shots])
    axes.set_yticks(range(len(betas)), _apart(betas), fontsize=7)
    return image


def _apart(values: Sequence[Number] | np.ndarray) -> list[str]:
    """Numbers with two digits, or three where two would make different ones look equal."""
    texts = [f"{value:.2g}" for value in values]
    return [
        f"{value:.3g}" if texts.count(text) > 1 else text
        for value, text in zip(values, texts, strict=True)
    ]
