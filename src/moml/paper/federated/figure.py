"""The federated table beside the paper's, and accuracy against rounds and bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moml.paper.federated.protocols import CONTROLS, METHODS, SPLIT
from moml.paper.federated.table import Outcome
from moml.report.figures import PALETTE, pyplot, save
from moml.report.terminal.rows import console

NAMES = ("per-fedavg", "localmoml", "pfedme", "fedavg", "localmoml-carried")
COLOURS = dict(zip(NAMES, PALETTE, strict=False)) | {
    "untrained": "#777777",
    "local": "#aaaaaa",
}
EXTRA = {  # metrics beside the accuracy, as the table calls them
    "accuracy_before": "before",
    "worst_decile": "worst",
    "spread": "spread",
    "accuracy_unseen": "unseen",
}


def split_of(row: dict[str, Any]) -> int:
    """The seed of a row's split; rows that do not name it are of the usual one."""
    return row["setting"].get("split", SPLIT)


def in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of several runs in the table's order; of a cell that was run twice, the later one."""
    methods = CONTROLS + METHODS
    cell = lambda row: (
        *(row["setting"][name] for name in ("k", "h", "clients")),
        methods.index(row["method"]),
    )
    last = {(*cell(row), row["metric"]): row for row in rows}
    return [last[key] for key in sorted(last)]


def print_federated(rows: Sequence[dict[str, Any]]) -> None:
    """One line a cell: ours, the paper's, and what the clients' spread hides."""
    from rich import box
    from rich.table import Table

    first, shown = rows[0], [row for row in rows if row["metric"] == "accuracy"]
    most = max(row["setting"]["rounds"] for row in rows)
    title = f"Federated, {first['dataset']}, protocol {first['protocol']}, up to {most:,} rounds, "
    other = "" if split_of(first) == SPLIT else f" of split {split_of(first)}"
    title += f"{first['seeds']} seeds{other}; accuracy in percent"
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("method", no_wrap=True)
    extra = [name for name in EXTRA if any(row["metric"] == name for row in rows)]
    together = {  # columns that share a place
        "K H B": ("k", "h", "clients"),
        "α η β": ("alpha", "eta", "beta"),
        "stop steps": ("stopped", "steps"),
    }
    if not any("stopped" in row["setting"] for row in rows):
        together.pop("stop steps")
    for name in (*together, "ours", "printed", *(EXTRA[name] for name in extra)):
        table.add_column(name, justify="right", no_wrap=True)
    pair = lambda mean, std: "-" if mean is None else f"{mean:.1f} ± {std:.1f}"
    one = lambda row: "-" if row["mean"] is None else f"{row['mean']:.1f}"
    ours = lambda row: (
        f"{one(row)}, {row['lost']} lost" if row["lost"] else pair(row["mean"], row["std"])
    )
    number = lambda value: "-" if value is None else f"{value:g}"
    cell_of = lambda row: (row["method"], *(row["setting"][name] for name in ("k", "h", "clients")))
    by_metric = {(*cell_of(row), row["metric"]): row for row in rows}
    for row in shown:
        setting = row["setting"]
        table.add_row(
            row["method"],
            *(" ".join(number(setting.get(n)) for n in names) for names in together.values()),
            ours(row),
            pair(row["paper_mean"], row["paper_std"]),
            *(one(by_metric.get((*cell_of(row), name), {"mean": None})) for name in extra),
        )
    console().print(table)


def accuracy_curves(outcomes: Sequence[Outcome], path: Path) -> Path:
    """Above against rounds, below against bytes: a column an H and B, a band over seeds."""
    panel_of = lambda one: (one.cell.k, one.cell.h, one.cell.clients)
    panels = list(dict.fromkeys(map(panel_of, outcomes)))
    figure, grid = pyplot().subplots(
        2, len(panels), figsize=(4.6 * len(panels) + 1, 6.6), layout="constrained",
        squeeze=False, sharey=True,
    )  # fmt: skip
    for column, panel in zip(grid.T, panels, strict=True):
        k, h, clients = panel
        for one in outcomes:
            if panel_of(one) != panel:
                continue
            colour, label = COLOURS[one.cell.method], one.cell.method
            if not one.bytes_a_round:  # nothing travels: a level
                for axes in column:
                    level = float(np.nanmean(one.seen.after))
                    axes.axhline(level, color=colour, linestyle=":", label=label)
                continue
            at = np.array([done for done, _ in one.curve])
            values = np.stack([value for _, value in one.curve])
            mark = "o" if len(at) == 1 else ""  # a line of one point would not be seen
            for axes, scale in zip(column, (1.0, one.bytes_a_round / 1e6), strict=True):
                mean = np.nanmean(values, axis=1)
                axes.plot(at * scale, mean, marker=mark, color=colour, label=label)
                low, high = np.nanmin(values, axis=1), np.nanmax(values, axis=1)
                axes.fill_between(at * scale, low, high, color=colour, alpha=0.15, linewidth=0)
        column[0].set_title(f"K = {k}, H = {h}, {clients} clients a round", fontsize=10)
        column[0].set(xlabel="rounds")
        column[1].set(xlabel="megabytes over the network, both ways")
        column[0].legend(frameon=False, fontsize=8)
    for row in grid:
        row[0].set_ylabel("accuracy, %")
    cell = outcomes[0].cell
    figure.suptitle(f"{cell.dataset}, protocol {cell.protocol}; bands: all seeds", fontsize=10)
    return save(figure, path)
