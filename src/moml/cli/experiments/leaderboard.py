"""`moml reproduce leaderboard`."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from moml.cli.experiments.experiment import ImageExperiment, Rows, earlier_rows
from moml.cli.validation import say

if TYPE_CHECKING:
    from moml.paper.leaderboard.cells import Cell
    from moml.types import Record


@dataclass(frozen=True, kw_only=True)
class Leaderboard(ImageExperiment):
    """PFLlib's benchmark: 20 clients, a CNN; its figures beside ours, and a strict protocol."""

    dataset: list[str] = field(default_factory=lambda: ["cifar100"])
    """mnist, fmnist, cifar10, cifar100."""
    split: list[str] = field(default_factory=lambda: ["dir", "pat"])
    """dir (Dirichlet 0.1), pat (two classes a client, ten of CIFAR-100)."""
    protocol: list[str] = field(default_factory=lambda: ["strict"])
    """pfllib (as printed: the best round on the test images), strict (half of the test images
    choose round and setting; the other half is scored)."""
    methods: list[str] | None = None
    """Rows of the table; by default all."""
    rounds: int = 100
    """Of every training."""
    score_every: int = 10
    """Rounds between two scores."""
    seeds: int = 1
    """Trained side by side, with all settings."""
    settings: int | None = None
    """Trainings of each method with each seed, 1, 3 (step sizes) or 6 (step sizes and each method's
    own constant); by default 1 under pfllib, 3 under strict."""
    new_clients: bool = False
    """Train without 4 of the 20 clients, and score these."""
    at_once: int | None = None
    """Clients that run side by side, in order of their sizes; by default what is fastest."""
    rows: list[Path] | None = None
    """Files of rows made earlier: print their tables and draw them, train nothing."""

    def run(self) -> None:
        """Train every cell that has no rows yet; rows are on disk after each of them."""
        from moml.paper.leaderboard import table

        rows = self.start("reproduce-leaderboard")
        if self.rows is None:
            self.train(rows)
        else:
            rows.all = earlier_rows(self.rows, "leaderboard")
        table.print_leaderboard(rows.all)
        table.print_tried(rows.all)
        pictures = table.pictures(rows.all, rows.folder)
        if self.rows is None:
            return rows.finish(*pictures)
        for picture in pictures:
            say(f"picture: {picture}")
        say(f"rows:    {len(rows.all)} read")

    def train(self, rows: Rows) -> None:
        """Add the rows of all cells that the file of rows lacks."""
        from moml.paper.cells import choose
        from moml.paper.leaderboard.cells import PROTOCOLS, Cell, run_cell
        from moml.paper.leaderboard.data import DATASETS, SPLITS, Benchmark, benchmark
        from moml.paper.leaderboard.methods import ETAS, ROWS

        axes = (
            choose("protocol", self.protocol, PROTOCOLS),
            choose("dataset", self.dataset, [*DATASETS]),
            choose("split", self.split, SPLITS),
            choose("methods", self.methods, [*ROWS]),
        )
        if self.settings is not None:
            choose("settings", [str(self.settings)], [str(count) for count in ETAS])
        if rows.file.exists():
            rows.all = earlier_rows([rows.file], "leaderboard")
        done = {_key(row) for row in rows.all}
        more = {} if self.at_once is None else {"at_once": self.at_once}
        benches: dict[tuple[str, str], Benchmark] = {}
        for protocol, dataset, split, method in itertools.product(*axes):
            settings = self.settings or (1 if protocol == "pfllib" else 3)
            cell = Cell(protocol, dataset, split, method, self.rounds, self.seeds, settings,
                        self.new_clients)  # fmt: skip
            if tuple(cell) in done:
                say(f"{_words(cell)}: done before")
                continue
            at = dataset, split
            if at not in benches:  # one at a time in memory
                benches = {at: benchmark(*at, self.data_dir, new=self.new_clients)}
            found = run_cell(cell, benches[at], every=self.score_every, progress=True, **more)
            if not found:
                say(f"{_words(cell)}: no model for new clients")
                continue
            rows.add(found)
            best = max(row["mean"] or 0.0 for row in found if "clients" in row)
            say(f"{_words(cell)}: {best:.2f}")


def _key(row: "Record") -> tuple[object, ...]:
    setting = row["setting"]
    return (
        row["protocol"], row["dataset"], setting["split"], row["method"], setting["rounds"],
        row["seeds"], setting["settings"], setting["new"],
    )  # fmt: skip


def _words(cell: "Cell") -> str:
    new = ", new clients" if cell.new else ""
    return f"{cell.dataset} {cell.split} {cell.protocol} {cell.method}{new}"
