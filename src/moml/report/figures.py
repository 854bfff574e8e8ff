"""What all pictures share: colours, Matplotlib, files."""

from pathlib import Path
from types import ModuleType
from typing import Any

from moml.errors import ConfigError

Axes = Any  # Matplotlib's, which is imported only when a picture is drawn
Figure = Any

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
        figure.savefig(path.with_suffix(suffix), dpi=150)
    pyplot().close(figure)
    return path.with_suffix(".png")
