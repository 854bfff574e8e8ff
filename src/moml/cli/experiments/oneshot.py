"""`moml reproduce oneshot`, and the search behind its tuned rows."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from moml.cli.experiments.experiment import Command, ImageExperiment
from moml.cli.validation import say

if TYPE_CHECKING:
    from moml.paper.oneshot.table import Cell


@dataclass(frozen=True, kw_only=True)
class Oneshot(ImageExperiment):
    """The one-shot table: Omniglot and CIFAR-100, every method, beside the paper's figures."""

    dataset: list[str] = field(default_factory=lambda: ["omniglot", "cifar100"])
    """omniglot, cifar100."""
    protocol: list[str] = field(default_factory=lambda: ["strict"])
    """released, paper, strict; several may be given."""
    methods: list[str] | None = None
    """Rows of the table; all of them by default."""
    images: list[str] | None = None
    """Omniglot: how images are given, a side and a look (paper, bytes, centred): 28 by default,
    28-paper, 105; several may be given."""
    split: list[int] = field(default_factory=lambda: [7])
    """Seeds of the split into classes to train on and to test on, and of the tasks."""
    seeds: int = 3
    """Trained side by side."""
    iterations: int | None = None
    """Of MAML, and of our own rows; by default the setting's."""

    def run(self) -> None:
        """Train and test every cell; rows are on disk after each of them."""
        from moml.paper.oneshot import table, tasks
        from moml.paper.oneshot.figure import oneshot_figures, title_of
        from moml.report.terminal import print_accuracies

        todo: dict[tuple[str, str, int], list[Cell]] = {}
        for data in self.dataset:
            looks = [None] if self.images is None or data != "omniglot" else self.images
            for images, split, name in itertools.product(looks, self.split, self.protocol):
                cells = table.cells(name, data, self.methods, images, split)
                tasks.look_of(cells[0].images)
                todo.setdefault((data, cells[0].images, split), []).extend(cells)
        rows, pictures = self.start("reproduce-oneshot"), []
        for (data, images, split), cells in todo.items():
            side, look = tasks.look_of(images)
            pool = tasks.images_of(data, side, self.data_dir)
            problem = tasks.problem_of(pool, tasks.SETTINGS[data], look, split=split)
            run_cell = lambda cell, problem=problem: table.run_cell(
                cell, problem, seeds=self.seeds, budget=self.iterations, progress=True
            )
            outcomes = rows.run(cells, run_cell)
            for name in self.protocol:
                mine = [outcome for outcome in outcomes if outcome.cell.protocol == name]
                print_accuracies([one.rows[0] for one in mine], title_of(mine[0].cell))
            pictures += oneshot_figures(outcomes, problem, rows.folder)
        rows.finish(*pictures)


@dataclass(frozen=True, kw_only=True)
class OneshotSearch(Command):
    """Choose the settings of the strict one-shot table's own rows, on validation tasks."""

    dataset: list[str] = field(default_factory=lambda: ["omniglot", "cifar100"])
    """omniglot, cifar100."""
    only: list[str] | None = None
    """Just these rows: protonet-tuned, joint-tuned, moml, moml-memory."""
    seeds: int = 1
    """Trained side by side, with the whole grid."""
    iterations: int | None = None
    """Instead of each row's own."""
    json: Path = Path("settings.json")
    """File for what was chosen; what it has of other rows stays."""
    data_dir: Path | None = None
    """Folder of all data sets; by default what MOML_DATA says."""

    def run(self) -> None:
        """Search row after row; the file is on disk after each of them."""
        from moml.paper.cells import choose
        from moml.paper.oneshot.search import KEYS, VARIANTS, search_row
        from moml.paper.oneshot.tasks import SETTINGS, images_of, look_of
        from moml.paper.search import read_settings, write_settings
        from moml.storage.files import writable_folder

        choose("dataset", self.dataset, [*SETTINGS])
        for data in self.dataset:
            choose("only", self.only, [*VARIANTS[data]])
        writable_folder(self.json.parent)
        content = read_settings(self.json, KEYS)
        for data in self.dataset:
            pool = images_of(data, look_of(SETTINGS[data].images)[0], self.data_dir)
            for row in self.only or VARIANTS[data]:
                command = f"moml reproduce oneshot-search --dataset {data} --only {row}"
                command += f" --seeds {self.seeds}"
                command += "" if self.iterations is None else f" --iterations {self.iterations}"
                content = search_row(
                    pool, data, row, content, seeds=self.seeds, budget=self.iterations,
                    command=command,
                )  # fmt: skip
                write_settings(content, self.json)
        say(f"settings: {self.json}")
