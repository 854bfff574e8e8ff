"""The leaderboard as tables and a picture."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich import box

from moml.paper.leaderboard.methods import ROWS
from moml.report.figures import PALETTE, panels, save
from moml.report.terminal import mean_std, number, print_table
from moml.types import Record

OWN = {"kept": 0, "tuned": 1, "global": 2}  # the model that a method is ranked by: the first it has
NAMES = {"kept": "kept", "tuned": "fine-tuned", "global": "global"}


def cells_in(rows: Sequence[Record]) -> list[tuple[str, str, str]]:
    """Protocol, data set and split of every table in some rows."""
    return list(dict.fromkeys((r["protocol"], r["dataset"], r["setting"]["split"]) for r in rows))


def of_cell(rows: Sequence[Record], cell: tuple[str, str, str]) -> list[Record]:
    """The rows of one table, methods in their order."""
    mine = [r for r in rows if (r["protocol"], r["dataset"], r["setting"]["split"]) == cell]
    return sorted(mine, key=lambda r: (list(ROWS).index(r["method"]), OWN[r["setting"]["model"]]))


def better_alone(row: Record, rows: Sequence[Record]) -> str:
    """How many clients `local` serves better than this row's models, of all; means over seeds."""
    alone = [r for r in rows if r["method"] == "local" and r["setting"]["model"] == "kept"]
    if not alone or row["method"] == "local":
        return "-"
    mine, other = (np.mean(r["clients"], axis=0) for r in (row, alone[0]))
    return f"{int((other > mine).sum())} of {len(mine)}"


def print_leaderboard(rows: Sequence[Record]) -> None:
    """A table for each protocol, data set and split."""
    for cell in cells_in(rows):
        mine = of_cell(rows, cell)
        metric = lambda row, name, mine=mine: next(
            other["mean"]
            for other in mine
            if other["metric"] == name
            and other["method"] == row["method"]
            and other["setting"]["model"] == row["setting"]["model"]
        )
        first = [row for row in mine if row["metric"] == "test_accuracy"]
        lines = [
            [
                row["method"], NAMES[row["setting"]["model"]],
                mean_std(row["mean"], row["std"], ".2f"), number(row["paper_mean"], ".2f"),
                number(metric(row, "worst_decile"), ".1f"), better_alone(row, first),
                " ".join(f"{at}" for at in dict.fromkeys(row["setting"]["at"])),
                f"{row['setting']['rounds']}",
            ]
            for row in first
        ]  # fmt: skip
        protocol, dataset, split = cell
        title = f"Leaderboard, {dataset} {split}, protocol {protocol}; accuracy in percent, "
        title += f"{first[0]['seeds']} seeds"
        columns = ("method", "model", "ours", "printed", "worst tenth", "better alone", "at round",
                   "of")  # fmt: skip
        look = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
        print_table(title, columns, lines, no_wrap=columns, **look)


def ranked(rows: Sequence[Record]) -> dict[str, float]:
    """Each method's accuracy by its own model: the kept one, else the global one as PFLlib has it.

    FedAvg after its clients' local epoch is a method of its own here, `fedavg + epoch`.
    """
    found: dict[str, float] = {}
    for row in sorted(rows, key=lambda r: -OWN[r["setting"]["model"]]):
        if row["metric"] == "test_accuracy" and row["mean"] is not None:
            tuned = row["setting"]["model"] == "tuned"
            name = f"{row['method']} + epoch" if tuned else row["method"]
            if not tuned or row["method"] in ("fedavg", "fedbabu", "per-fedavg"):
                found[name] = row["mean"]
    return found


def ranks_figure(rows: Sequence[Record], path: Path) -> Path:
    """Accuracy of every method, a panel a table, in descending order; printed figures as marks."""
    cells = cells_in(rows)
    figure, grid = panels(1, len(cells), (4.8 * len(cells) + 0.6, 5.2))
    for axes, cell in zip(grid[0], cells, strict=True):
        mine = of_cell(rows, cell)
        order = sorted(ranked(mine).items(), key=lambda item: item[1])
        place = {name: i for i, (name, _) in enumerate(order)}
        axes.barh(range(len(order)), [value for _, value in order], color=PALETTE[0], height=0.6)
        printed = {r["method"]: r["paper_mean"] for r in mine if r["paper_mean"] is not None}
        known = [(value, place[name]) for name, value in printed.items() if name in place]
        if known:
            axes.plot(*zip(*known, strict=True), "D", color=PALETTE[1], label="printed")
            axes.legend(frameon=False, fontsize=8, loc="lower right")
        axes.set_yticks(range(len(order)), [name for name, _ in order], fontsize=8)
        axes.set(xlabel="accuracy, %", title=f"{cell[1]} {cell[2]}, {cell[0]}")
        axes.title.set_fontsize(10)
    return save(figure, path)
