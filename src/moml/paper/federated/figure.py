"""The federated table beside the paper's, and accuracy against rounds and bytes."""

from collections.abc import Sequence
from pathlib import Path

from rich import box

from moml.paper.federated.cells import CONTROLS, METHODS, SPLIT
from moml.paper.federated.table import Outcome
from moml.paper.figures import band, panels
from moml.report.figures import PALETTE, save
from moml.report.terminal import print_table
from moml.types import Record

NAMES = ("per-fedavg", "localmoml", "pfedme", "fedavg", "localmoml-carried")
COLOURS = dict(zip(NAMES, PALETTE, strict=False)) | {"untrained": "#777777", "local": "#aaaaaa"}
EXTRA = {  # metrics beside the accuracy, as the table calls them
    "accuracy_before": "before",
    "worst_decile": "worst",
    "spread": "spread",
    "accuracy_unseen": "unseen",
}


AXES = ("k", "h", "clients")


def split_of(row: Record) -> int:
    """The seed of a row's split; rows that do not name it are of the usual one."""
    return row["setting"].get("split", SPLIT)


def cell_of(row: Record) -> tuple[int, ...]:
    """The cell of a row; sorting by it gives the table's order."""
    return (*(row["setting"][name] for name in AXES), (CONTROLS + METHODS).index(row["method"]))


def in_order(rows: Sequence[Record]) -> list[Record]:
    """Rows of several runs in the table's order; of a cell that was run twice, the later one."""
    last = {(*cell_of(row), row["metric"]): row for row in rows}
    return [last[key] for key in sorted(last)]


def print_federated(rows: Sequence[Record]) -> None:
    """One line a cell: ours, the paper's, and what the clients' spread hides."""
    first = rows[0]
    most = max(row["setting"]["rounds"] for row in rows)
    other = "" if split_of(first) == SPLIT else f" of split {split_of(first)}"
    title = (
        f"Federated, {first['dataset']}, protocol {first['protocol']}, up to {most:,} rounds, "
        f"{first['seeds']} seeds{other}; accuracy in percent"
    )
    extra = [name for name in EXTRA if any(row["metric"] == name for row in rows)]
    shared: dict[str, tuple[str, ...]] = {"K H B": AXES, "α η β": ("alpha", "eta", "beta")}
    if any("stopped" in row["setting"] for row in rows):
        shared["stop steps"] = ("stopped", "steps")
    pair = lambda mean, std: "-" if mean is None else f"{mean:.1f} ± {std:.1f}"
    one = lambda row: "-" if row is None or row["mean"] is None else f"{row['mean']:.1f}"
    number = lambda value: "-" if value is None else f"{value:g}"
    by_metric = {(cell_of(row), row["metric"]): row for row in rows}

    def line(row: Record) -> list[str]:
        setting, lost = row["setting"], f"{one(row)}, {row['lost']} lost"
        return [
            row["method"],
            *(" ".join(number(setting.get(n)) for n in names) for names in shared.values()),
            lost if row["lost"] else pair(row["mean"], row["std"]),
            pair(row["paper_mean"], row["paper_std"]),
            *(one(by_metric.get((cell_of(row), name))) for name in extra),
        ]

    columns = ("method", *shared, "ours", "printed", *(EXTRA[name] for name in extra))
    lines = [line(row) for row in rows if row["metric"] == "accuracy"]
    look = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
    print_table(title, columns, lines, no_wrap=columns, **look)


def accuracy_curves(outcomes: Sequence[Outcome], path: Path) -> Path:
    """Above against rounds, below against bytes: a column an H and B, a band over seeds."""
    by_panel: dict[tuple[int, ...], list[Outcome]] = {}
    for one in outcomes:
        by_panel.setdefault((one.cell.k, one.cell.h, one.cell.clients), []).append(one)
    size = (4.6 * len(by_panel) + 1, 6.6)
    figure, grid = panels(2, len(by_panel), size, sharey=True)
    for column, ((k, h, clients), mine) in zip(grid.T, by_panel.items(), strict=True):
        for one in mine:
            colour, label = COLOURS[one.cell.method], one.cell.method
            mark = "o" if len(one.curve) == 1 else ""  # a line of one point would not be seen
            for axes, scale in zip(column, (1.0, one.bytes_a_round / 1e6), strict=True):
                if one.bytes_a_round:
                    scaled = [(done * scale, values) for done, values in one.curve]
                    band(axes, scaled, colour, label, marker=mark)
                else:  # nothing is sent: a level
                    axes.axhline(one.rows[0]["mean"], color=colour, linestyle=":", label=label)
        column[0].set_title(f"K = {k}, H = {h}, {clients} clients a round", fontsize=10)
        column[0].set(xlabel="rounds")
        column[1].set(xlabel="megabytes over the network, both ways")
        column[0].legend(frameon=False, fontsize=8)
    for row in grid:
        row[0].set_ylabel("accuracy, %")
    cell = outcomes[0].cell
    figure.suptitle(f"{cell.dataset}, protocol {cell.protocol}; bands: all seeds", fontsize=10)
    return save(figure, path)
