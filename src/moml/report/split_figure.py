"""A split over clients as a picture: who has how much of which class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moml.data.partition import per_client
from moml.errors import DataError
from moml.report.figures import PALETTE, pyplot, save

DOTS = 100  # clients that are legible as dots; more become columns of colour
NAMES = 40  # classes whose names are legible


def split_figure(
    y: Any, rows: Sequence[Any], path: Path, names: Sequence[str] | None = None, title: str = ""
) -> Path:
    """Clients across, classes down, the rows of each client above; written as PNG and SVG.

    Up to 100 clients are dots in their own order, area by rows. More are columns, dark where there
    are many rows, put in the order of their largest class so that it shows.
    """
    counts = per_client(y, list(rows))
    clients, classes = counts.shape
    names = [str(label) for label in np.unique(y)] if names is None else list(names)
    if len(names) != classes:
        raise DataError(f"{len(names)} names for {classes} classes that occur")
    width, height = np.clip(0.17 * clients, 5, 12), np.clip(0.24 * classes, 2.2, 9)
    figure, (above, grid) = pyplot().subplots(
        2, 1, sharex=True, figsize=(width + 1.6, height + 1.6), layout="constrained",
        height_ratios=(1.1, height),
    )  # fmt: skip
    many = clients > DOTS
    order = _by_largest(counts) if many else np.arange(clients)
    shown = counts[order]
    above.bar(range(clients), shown.sum(axis=1), width=1.0 if many else 0.7, color="0.55")
    above.set_ylabel("rows")
    above.tick_params(bottom=False)
    above.set_title(title, fontsize=10)
    key = _columns(grid, shown) if many else _dots(grid, shown, width / clients, height / classes)
    place = "clients, by their largest class and its rows" if many else "client"
    grid.set(xlabel=place, xlim=(-0.7, clients - 0.3), ylim=(classes - 0.4, -0.6))
    if classes <= NAMES:
        grid.set_yticks(range(classes), names, fontsize=8)
    else:
        grid.set_ylabel(f"{classes} classes")
    if many:
        figure.colorbar(key, ax=grid, label="rows of a class", pad=0.01, aspect=30)
    else:
        figure.legend(handles=key, title="rows", loc="outside right center", frameon=False,
                      labelspacing=1.2, fontsize=8, title_fontsize=8)  # fmt: skip
    return save(figure, path)


def _by_largest(counts: np.ndarray) -> np.ndarray:
    return np.lexsort((-counts.max(axis=1), counts.argmax(axis=1)))


def _dots(axes: Any, counts: np.ndarray, across: float, down: float) -> list[Any]:
    """The grid of dots, and the dots of its legend; the largest just touch."""
    largest = (72 * min(across, down)) ** 2
    client, label = np.nonzero(counts)
    each = counts[client, label]
    axes.scatter(client, label, s=largest * each / each.max(), color=PALETTE[0], linewidths=0)
    axes.set_axisbelow(True)
    axes.grid(color="0.93", linewidth=0.6)
    few = np.unique(np.quantile(each, (0, 0.5, 1), method="nearest"))
    plot = lambda rows: axes.scatter(
        [], [], s=largest * rows / each.max(), color=PALETTE[0], linewidths=0, label=f"{rows:,}"
    )
    return [plot(rows) for rows in few]


def _columns(axes: Any, counts: np.ndarray) -> Any:
    """The grid as colour, white where there is nothing; logarithmic, for sizes differ by powers."""
    from matplotlib.colors import LogNorm

    return axes.imshow(
        np.ma.masked_equal(counts.T, 0), aspect="auto", interpolation="nearest", cmap="viridis_r",
        norm=LogNorm(1, max(int(counts.max()), 2)),
    )  # fmt: skip
