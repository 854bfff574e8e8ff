"""`moml reproduce oneshot`, and the search behind its own rows."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moml.cli.validation import places, set_aside, some
from moml.errors import ConfigError, check_count


@dataclass(frozen=True)
class Oneshot:
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
    out: Path = Path("reproduce-oneshot")
    """Folder for pictures and rows."""
    json: Path | None = None
    """File for the rows; by default rows.json in the folder."""
    data_dir: Path | None = None
    """Folder of all data sets; by default what MOML_DATA says."""


@dataclass(frozen=True)
class OneshotSearch:
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


def oneshot(command: Oneshot) -> None:
    """Train and test every cell; rows are on disk after each of them."""
    from moml.paper.oneshot import plan as oneshot_plan
    from moml.paper.oneshot import table
    from moml.paper.oneshot import tasks as oneshot_tasks
    from moml.paper.oneshot.figure import oneshot_figures, title_of
    from moml.report.terminal.rows import print_accuracies
    from moml.storage.files import write_json

    check_count("seeds", command.seeds)
    if command.iterations is not None:
        check_count("iterations", command.iterations)
    for name in ("dataset", "protocol", "methods", "images", "split"):
        some(name, getattr(command, name))
    for split in command.split:
        check_count("split", split, least=0, below=2**31)
    todo: dict[tuple[str, str, int], list[Any]] = {}
    for data in command.dataset:
        looks = [None] if command.images is None or data != "omniglot" else command.images
        for images, split, name in itertools.product(looks, command.split, command.protocol):
            made = oneshot_plan.cells(name, data, command.methods, images, split)
            oneshot_tasks.look_of(made[0].images)
            todo.setdefault((data, made[0].images, split), []).extend(made)
    folder, rows_file = places(command.out, command.json)
    set_aside(rows_file)
    rows: list[dict[str, Any]] = []
    for (data, images, split), cells in todo.items():
        setting, (side, look) = oneshot_tasks.SETTINGS[data], oneshot_tasks.look_of(images)
        pool = oneshot_tasks.images_of(data, side, command.data_dir)
        problem = oneshot_tasks.problem_of(pool, setting, look, split=split)
        outcomes = []
        for cell in cells:
            outcomes.append(
                table.run_cell(
                    cell, problem, seeds=command.seeds, budget=command.iterations, progress=True
                )
            )
            rows.append(table.row_of(outcomes[-1]))
            write_json(rows, rows_file)
        for name in command.protocol:
            mine = [outcome for outcome in outcomes if outcome.cell.protocol == name]
            print_accuracies([table.row_of(one) for one in mine], title_of(mine[0].cell))
        for picture in oneshot_figures(outcomes, problem, folder):
            print(f"picture: {picture}")
    print(f"rows:    {rows_file}")


def search(command: OneshotSearch) -> None:
    """Search row after row; the file is on disk after each of them."""
    from moml.paper.oneshot import search as searching
    from moml.paper.oneshot.tasks import SETTINGS, images_of, look_of
    from moml.storage.files import writable_folder

    check_count("seeds", command.seeds)
    if command.iterations is not None:
        check_count("iterations", command.iterations)
    for name in ("dataset", "only"):
        some(name, getattr(command, name))
    for data in command.dataset:
        if data not in SETTINGS:
            raise ConfigError(f"unknown data set {data!r}; allowed: {', '.join(SETTINGS)}")
        for row in command.only or ():
            if row not in searching.VARIANTS[data]:
                known = ", ".join(searching.VARIANTS[data])
                raise ConfigError(f"unknown row {row!r}; allowed: {known}")
    writable_folder(command.json.parent)
    content = searching.read_content(command.json)
    for data in command.dataset:
        pool = images_of(data, look_of(SETTINGS[data].images)[0], command.data_dir)
        for row in command.only or searching.VARIANTS[data]:
            said = f"moml reproduce oneshot-search --dataset {data} --only {row}"
            said += f" --seeds {command.seeds}"
            said += "" if command.iterations is None else f" --iterations {command.iterations}"
            content = searching.search_row(
                pool, data, row, content,
                seeds=command.seeds, budget=command.iterations, command=said,
            )  # fmt: skip
            searching.write_content(content, command.json)
    print(f"settings: {command.json}")
