"""A split over clients as a picture: who has how much of which class."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from moml.data.split.partition import per_client
from moml.errors import DataError
from moml.report.figures import PALETTE, Axes, pyplot, save

DOTS = 100  # clients that are legible as dots; more become columns of colour
NAMES = 40  # classes whose names are legible


def split_figure(
    y: ArrayLike, rows: Sequence[np.ndarray], path: Path, names: Sequence[str] | None = None,
    title: str = "",
) -> Path:  # fmt: skip
    """Clients across, classes down, the rows of each client above; written as PNG and SVG.

    Up to 100 clients are dots in their own order, area by rows. More are columns, dark where there
    are many rows, put in the order of their largest class so that it shows.

    >>> import tempfile
    >>> y = np.repeat(np.arange(2), 6)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     split_figure(y, [np.arange(8), np.arange(8, 12)], Path(folder) / "split").name
    'split.png'
    """
    counts = per_client(y, list(rows))
    clients, classes = counts.shape
    names = [str(label) for label in np.unique(y)] if names is None else list(names)
    if len(names) != classes:
        raise DataError(
            f"names must be as many as the {classes} classes that occur; got {len(names)}"
        )
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
    above.set_title(title)
    above.yaxis.set_major_formatter("{x:,.0f}")
    grid.set(xlim=(-0.7, clients - 0.3), ylim=(classes - 0.4, -0.6))
    if classes <= NAMES:
        grid.set_yticks(range(classes), names, fontsize=8)
    else:
        grid.set_ylabel(f"{classes} classes")
    if many:
        grid.set_xticks([], [])
        grid.set_xlabel(f"{clients:,} clients, in the order of their largest class")
        figure.colorbar(
            _columns(grid, shown), ax=grid, label="rows of a class", pad=0.01, aspect=30
        )
    else:
        grid.set_xlabel("client")
        grid.xaxis.get_major_locator().set_params(integer=True)
        figure.legend(
            handles=_dots(grid, shown, min(width / clients, height / classes)), title="rows",
            loc="outside right center", labelspacing=1.2,
        )  # fmt: skip
    return save(figure, path)


def _by_largest(counts: np.ndarray) -> np.ndarray:
    """Clients by largest class, then most rows of it first, then by their second class."""
    ranked = np.argsort(-counts, axis=1, kind="stable")[:, :2]
    return np.lexsort((ranked[:, -1], -counts.max(axis=1), ranked[:, 0]))


def _dots(axes: Axes, counts: np.ndarray, cell: float) -> list[object]:
    """The grid of dots, and the dots of its legend; the largest just touch, the least are seen."""
    client, label = np.nonzero(counts)
    each = counts[client, label]
    look = {"color": PALETTE[0], "linewidths": 0}
    area = lambda rows: np.maximum((72 * cell) ** 2 * rows / each.max(), 1.5)
    axes.scatter(client, label, s=area(each), **look)
    axes.grid()
    few = np.unique(np.quantile(each, (0, 0.5, 1), method="nearest"))
    return [axes.scatter([], [], s=area(rows), label=f"{rows:,}", **look) for rows in few]


def _columns(axes: Axes, counts: np.ndarray) -> object:
    """The grid as colour, white where there is nothing; by the square root, as dots are wide."""
    return axes.imshow(
        counts.T, aspect="auto", interpolation="nearest", cmap="Blues",
        norm=pyplot().matplotlib.colors.PowerNorm(0.5, vmin=0, vmax=counts.max()),
    )  # fmt: skip
