"""The leaderboard as tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from moml.paper.leaderboard.methods import ROWS
from moml.paper.leaderboard.pictures import accuracy_figure, curves_figure, ranks_figure
from moml.report.terminal import NARROW, mean_std, number, print_table
from moml.types import Record

OWN = {"kept": 0, "tuned": 1, "global": 2}
NAMES = {"kept": "kept", "tuned": "fine-tuned", "global": "global"}
SERVED = ("fedavg", "fedprox", "fedbabu", "per-fedavg", "pfedme", "localmoml",
          "localmoml-carried")  # fmt: skip  # clients keep no model: after their epoch


class Place(NamedTuple):
    """One table: a protocol on a data set and split; `new`: of new clients."""

    protocol: str
    dataset: str
    split: str
    new: bool

    @property
    def title(self) -> str:
        """In words."""
        new = ", new clients" if self.new else ""
        return f"{self.dataset} {self.split}, {self.protocol}{new}"


def place_of(row: Record) -> Place:
    """The table that a row belongs to."""
    setting = row["setting"]
    return Place(row["protocol"], row["dataset"], setting["split"], setting["new"])


def tables_in(rows: Sequence[Record]) -> dict[Place, list[Record]]:
    """The rows with accuracies by table, methods in their order; of several runs the longest."""
    found: dict[Place, dict[tuple[int, int], Record]] = {}
    length = lambda row: (row["setting"]["rounds"], row["seeds"])
    for row in rows:
        if row["metric"] == "test_accuracy":
            mine = found.setdefault(place_of(row), {})
            at = [*ROWS].index(row["method"]), OWN[row["setting"]["model"]]
            if at not in mine or length(row) > length(mine[at]):
                mine[at] = row
    return {place: [mine[at] for at in sorted(mine)] for place, mine in found.items()}


def better_alone(row: Record, rows: Sequence[Record]) -> str:
    """How many clients `local` serves better than this row's models, of all; means over seeds."""
    alone = [r for r in rows if r["method"] == "local" and r["setting"]["model"] == "kept"]
    if not alone or row["method"] == "local":
        return "-"
    mine, other = (np.mean(r["clients"], axis=0) for r in (row, alone[0]))
    return f"{int((other > mine).sum())} of {len(mine)}"


def _line(row: Record, first: Sequence[Record], rows: Sequence[Record]) -> list[str]:
    like = lambda other: all(other[key] == row[key] for key in ("method", "setting", "seeds"))
    worst = next(
        other["mean"]
        for other in rows
        if other["metric"] == "worst_decile" and place_of(other) == place_of(row) and like(other)
    )
    mean, std = row["mean"], row["std"]
    ours = mean_std(mean, std, ".2f") if row["seeds"] > 1 else number(mean, ".2f")
    eta = row["setting"].get("eta")
    return [
        row["method"], NAMES[row["setting"]["model"]],
        ours, str(row["seeds"]), number(row["paper_mean"], ".2f"), number(worst, ".1f"),
        better_alone(row, first), number(eta, "g"),
        " ".join(f"{at}" for at in dict.fromkeys(row["setting"]["at"])),
        f"{row['setting']['rounds']}",
    ]  # fmt: skip


def print_leaderboard(rows: Sequence[Record]) -> None:
    """A table for each protocol, data set and split."""
    columns = ("method", "model", "ours", "seeds", "printed", "worst tenth", "better alone", "eta",
               "at round", "of")  # fmt: skip
    for place, first in tables_in(rows).items():
        lines = [_line(row, first, rows) for row in first]
        title = f"Leaderboard, {place.title}; accuracy in percent"
        print_table(title, columns, lines, no_wrap=columns, **NARROW)


def print_tried(rows: Sequence[Record]) -> None:
    """Every setting of the rows that stand for their methods, at its best round."""
    columns = ("method", "model", "setting", "chosen by", "scored", "at round")
    for place, mine in tables_in(rows).items():
        lines = [
            [name, NAMES[row["setting"]["model"]], _setting(one), number(one["chosen_by"], ".2f"),
             number(one["test"], ".2f"), str(one["round"])]
            for name, row in ranked(mine).items()
            for one in row.get("tried", [])
        ]  # fmt: skip
        if lines:
            title = f"Settings tried, {place.title}; accuracy in percent, each at its best round"
            print_table(title, columns, lines, no_wrap=columns, **NARROW)


def _setting(tried: Record) -> str:
    other = ("round", "chosen_by", "test")
    return " ".join(f"{name}={value:g}" for name, value in tried.items() if name not in other)


def ranked(rows: Sequence[Record]) -> dict[str, Record]:
    """The row that stands for each method: the kept model, or the global one after an epoch.

    FedAvg and FedProx are ranked twice: as printed, with their global model, and after an epoch.
    """
    found: dict[str, Record] = {}
    for row in rows:
        name, model = row["method"], row["setting"]["model"]
        if row["mean"] is None:
            continue
        if model == "kept" or (model == "global" and name in ("fedavg", "fedprox")):
            found[name] = row
        elif model == "tuned" and name in SERVED:
            found[f"{name} + epoch" if name in ("fedavg", "fedprox") else name] = row
    return found


def pictures(rows: Sequence[Record], folder: Path) -> list[Path]:
    """Accuracies, curves, and where there are both protocols, ranks under one beside the other."""
    tables = {place.title: ranked(mine) for place, mine in tables_in(rows).items()}
    found = [
        accuracy_figure(tables, folder / "leaderboard"),
        curves_figure(tables, folder / "leaderboard-curves"),
    ]
    known = {place: ranked(mine) for place, mine in tables_in(rows).items() if not place.new}
    both = {
        f"{place.dataset} {place.split}": (known[place._replace(protocol="pfllib")], mine)
        for place, mine in known.items()
        if place.protocol == "strict" and place._replace(protocol="pfllib") in known
    }
    return [*found, ranks_figure(both, folder / "leaderboard-ranks")] if both else found
