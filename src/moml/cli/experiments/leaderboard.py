"""`moml reproduce leaderboard`."""

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moml.cli.experiments.experiment import ImageExperiment
from moml.cli.validation import places, say

if TYPE_CHECKING:
    from pathlib import Path

    from moml.paper.leaderboard.cells import Cell
    from moml.paper.leaderboard.data import Benchmark
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
    choose round and setting, of three for every method; the other half is scored)."""
    methods: list[str] | None = None
    """Rows of the table; by default all."""
    rounds: int = 100
    """Of every training."""
    score_every: int = 10
    """Rounds between two scores."""
    seeds: int = 1
    """Trained side by side, with all settings."""
    at_once: int | None = None
    """Clients that run side by side, in order of their sizes; by default all, or what a CPU's cache
    holds."""

    def run(self) -> None:
        """Train every cell that has no rows yet; rows are on disk after each of them."""
        from moml.paper.cells import choose
        from moml.paper.leaderboard import table
        from moml.paper.leaderboard.cells import PROTOCOLS, Cell, run_cell
        from moml.paper.leaderboard.data import DATASETS, SPLITS, benchmark
        from moml.paper.leaderboard.methods import ROWS
        from moml.storage.files import write_json

        axes = (
            choose("protocol", self.protocol, PROTOCOLS),
            choose("dataset", self.dataset, [*DATASETS]),
            choose("split", self.split, SPLITS),
            choose("methods", self.methods, [*ROWS]),
        )
        folder, file = places(self.out or _folder(), self.json)
        rows = _earlier(file)
        done = {_key(row) for row in rows}
        more = {} if self.at_once is None else {"at_once": self.at_once}
        benches: dict[tuple[str, str], Benchmark] = {}
        for protocol, dataset, split, method in itertools.product(*axes):
            cell = Cell(protocol, dataset, split, method, self.rounds, self.seeds)
            if tuple(cell) in done:
                say(f"{_words(cell)}: done before")
                continue
            at = dataset, split
            if at not in benches:
                benches = {at: benchmark(*at, self.data_dir)}  # one at a time in memory
            outcome = run_cell(cell, benches[at], every=self.score_every, progress=True, **more)
            rows += outcome.rows
            write_json(rows, file)
            best = next(row for row in outcome.rows if row["metric"] == "test_accuracy")
            say(f"{_words(cell)}: {best['mean']:.2f} ({best['setting']['model']})")
        table.print_leaderboard(rows)
        say(f"picture: {table.ranks_figure(rows, folder / 'leaderboard')}")
        say(f"rows:    {file}")


def _folder() -> "Path":
    from pathlib import Path

    return Path("reproduce-leaderboard")


def _earlier(file: "Path") -> "list[Record]":
    """The rows of an earlier command in this folder, to which new cells are added."""
    from moml.errors import DataError
    from moml.storage.files import read_json

    rows = read_json(file) if file.exists() else []
    for row in rows:
        if row.get("table") != "leaderboard":
            raise DataError(
                f"{file} must have rows of table 'leaderboard'; got {row.get('table')!r}"
            )
    return rows


def _key(row: "Record") -> tuple[object, ...]:
    setting = row["setting"]
    return (
        row["protocol"], row["dataset"], setting["split"], row["method"], setting["rounds"],
        row["seeds"],
    )  # fmt: skip


def _words(cell: "Cell") -> str:
    return f"{cell.dataset} {cell.split} {cell.protocol} {cell.method}"
