"""`moml reproduce federated`."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moml.cli.validation import places, set_aside, some
from moml.errors import DataError, check_count


@dataclass(frozen=True)
class Federated:
    """The federated table: 50 clients of MNIST, CIFAR-10, CIFAR-100, beside the paper's figures."""

    dataset: list[str] = field(default_factory=lambda: ["mnist", "cifar10", "cifar100"])
    """mnist, cifar10, cifar100."""
    protocol: list[str] = field(default_factory=lambda: ["strict"])
    """released, released-scaled, paper, strict; several may be given."""
    local_steps: list[int] = field(default_factory=lambda: [4, 10])
    """H, steps of a client in a round."""
    clients_per_round: list[int] = field(default_factory=lambda: [4, 20])
    """B, of 50; the paper's B' = 1 and 5 on each of 4 GPUs."""
    k: list[int] = field(default_factory=lambda: [5])
    """Samples in each of a local step's batches; clients are tested with 5 whatever it is."""
    split: int = 7
    """Seed of who owns which images; all seeds of a table share the split."""
    rounds: int = 10_000
    """Of every method (paper: iterations, that is H times as many as rounds)."""
    methods: list[str] | None = None
    """Rows of the table: per-fedavg, localmoml, localmoml-carried (a memory kept between rounds),
    pfedme, and the controls untrained, local (every client by itself), fedavg; by default all."""
    seeds: int = 3
    """Trained side by side."""
    rows: list[Path] | None = None
    """Files of rows made earlier: print their tables, train nothing."""
    out: Path | None = None
    """Folder for pictures and rows; by default reproduce-federated, and with its number where it is
    another split than 7."""
    json: Path | None = None
    """File for the rows; by default rows.json in the folder."""
    data_dir: Path | None = None
    """Folder of all data sets; by default what MOML_DATA says."""


@dataclass(frozen=True)
class Memory:
    """Where memory pays among clients: accuracy over K, beta and shots, restarted and carried."""

    dataset: str = "cifar10"
    """mnist, cifar10 or cifar100."""
    k: list[int] = field(default_factory=lambda: [1, 5])
    """Samples in each of a local step's batches."""
    memory: list[str] = field(default_factory=lambda: ["restarted", "carried"])
    """restarted (in every round), carried (from round to round)."""
    local_steps: int = 10
    """H, steps of a client in a round."""
    clients_per_round: int = 20
    """B, of 50."""
    rounds: int = 2000
    """Of every training."""
    seeds: int = 2
    """Trained side by side, with every beta and eta."""
    out: Path = Path("reproduce-federated-memory")
    """Folder for the picture and the rows."""
    json: Path | None = None
    """File for the rows; by default rows.json in the folder."""
    data_dir: Path | None = None
    """Folder of all data sets; by default what MOML_DATA says."""


def memory(command: Memory) -> None:
    """Train every study; rows are on disk after each of them."""
    from moml.config.problems import one_of
    from moml.paper.federated import memory as paper
    from moml.paper.federated.cells import cells
    from moml.paper.federated.data import images_of, problem_of
    from moml.paper.federated.memory_figure import memory_figure, print_memory
    from moml.paper.federated.protocols import PROTOCOLS
    from moml.storage.files import write_json

    for name in ("seeds", "rounds", "local_steps", "clients_per_round"):
        check_count(name, getattr(command, name))
    some("k", command.k)
    for value in command.k:
        check_count("k", value)
    some("memory", command.memory)
    for kind in command.memory:
        one_of("memory", kind, tuple(paper.MEMORIES))
    data, h, clients = command.dataset, command.local_steps, command.clients_per_round
    cells("strict", data, [h], [clients], None)
    folder, rows_file = places(command.out, command.json)
    problem = problem_of(*images_of(data, command.data_dir), data, PROTOCOLS["strict"])
    set_aside(rows_file)
    rows: list[dict[str, Any]] = []
    for k, kind in itertools.product(command.k, command.memory):
        study = paper.Study(data, k, kind, h, clients, command.rounds)
        rows += paper.measured(study, problem, command.seeds, progress=True)
        write_json(rows, rows_file)
    print_memory(rows)
    print(f"picture: {memory_figure(rows, folder / f'memory-{data}')}")
    print(f"rows:    {rows_file}")


def tables(files: list[Path]) -> None:
    """The tables of rows made earlier, one a data set and protocol."""
    from moml.paper.federated.figure import in_order, print_federated, split_of
    from moml.storage.files import read_json

    some("rows", files)
    rows = [row for file in files for row in read_json(file)]
    for row in rows:
        if row.get("table") != "federated":
            raise DataError(f"a row of table {row.get('table')!r}; only federated can be printed")
    key = lambda row: (row["dataset"], row["protocol"], split_of(row))
    try:
        for place in dict.fromkeys(map(key, rows)):
            print_federated(in_order([row for row in rows if key(row) == place]))
    except KeyError as error:
        raise DataError(f"a row of table 'federated' without {error}") from error


def own_folder(split: int) -> Path:
    """Where the results of a split go by default."""
    return Path("reproduce-federated" + (f"-split-{split}" if split != Federated.split else ""))


def federated(command: Federated) -> None:
    """Train and test every cell; rows are on disk after each of them."""
    if command.rows is not None:
        return tables(command.rows)
    from moml.paper.federated import table
    from moml.paper.federated.cells import cells as cells_of
    from moml.paper.federated.data import images_of, problem_of
    from moml.paper.federated.figure import accuracy_curves, print_federated
    from moml.storage.files import write_json

    check_count("seeds", command.seeds)
    check_count("rounds", command.rounds)
    check_count("split", command.split, least=0, below=2**31)
    for name in ("dataset", "protocol", "local_steps", "clients_per_round", "methods", "k"):
        some(name, getattr(command, name))
    for name in ("local_steps", "clients_per_round", "k"):
        for value in getattr(command, name):
            check_count(name, value)
    axes = (
        command.local_steps,
        command.clients_per_round,
        command.methods,
        command.k,
        command.split,
    )
    todo = {
        (data, name): cells_of(name, data, *axes)
        for data, name in itertools.product(command.dataset, command.protocol)
    }
    folder, rows_file = places(command.out or own_folder(command.split), command.json)
    set_aside(rows_file)
    rows: list[dict[str, Any]] = []
    for data in dict.fromkeys(command.dataset):
        images = images_of(data, command.data_dir)
        for name in dict.fromkeys(command.protocol):
            cells, outcomes = todo[data, name], []
            problem = problem_of(*images, data, cells[0].switches, command.split)
            test = table.scores_of(problem, cells[0].switches, command.seeds)
            for cell in cells:
                outcome = table.run_cell(
                    cell, problem, test, seeds=command.seeds, budget=command.rounds, progress=True
                )
                outcomes.append(outcome)
                rows += table.rows_of(outcome)
                write_json(rows, rows_file)
            print_federated([row for one in outcomes for row in table.rows_of(one)])
            print(f"picture: {accuracy_curves(outcomes, folder / f'{name}-{data}')}")
    print(f"rows:    {rows_file}")
