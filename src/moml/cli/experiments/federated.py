"""`moml reproduce federated` and `federated-memory`."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path

from moml.cli.experiments.experiment import ImageExperiment, earlier_rows
from moml.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Federated(ImageExperiment):
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
    """Seed of who owns which images, the same for all seeds; the default folder of another split
    ends in its number."""
    rounds: int = 10_000
    """Of every method (paper: iterations, that is H times as many as rounds)."""
    methods: list[str] | None = None
    """Rows of the table: per-fedavg, localmoml, localmoml-carried (a memory kept between rounds),
    pfedme, and the controls untrained, local (every client on its own), fedavg; by default all."""
    seeds: int = 3
    """Trained side by side."""
    rows: list[Path] | None = None
    """Files of rows made earlier: print their tables, train nothing."""

    def run(self) -> None:
        """Train and test every cell; rows are on disk after each of them."""
        if self.rows is not None:
            return print_tables(self.rows)
        from moml.paper.federated import table
        from moml.paper.federated.cells import cells
        from moml.paper.federated.data import images_of, problem_of, scores_of

        todo = {
            (data, name): cells(
                name, data, self.local_steps, self.clients_per_round, self.methods, self.k,
                self.split,
            )
            for data, name in itertools.product(self.dataset, self.protocol)
        }  # fmt: skip
        split = "" if self.split == Federated.split else f"-split-{self.split}"
        rows, pictures = self.start(f"reproduce-federated{split}"), []
        images = {}
        for (data, name), mine in todo.items():
            if data not in images:
                images = {data: images_of(data, self.data_dir)}  # of one data set at a time
            problem = problem_of(*images[data], data, mine[0].switches, self.split)
            test = scores_of(problem, mine[0].switches, self.seeds)
            run_cell = lambda cell, problem=problem, test=test: table.run_cell(
                cell, problem, test, seeds=self.seeds, budget=self.rounds, progress=True
            )
            outcomes = rows.run(mine, run_cell)
            table.print_federated([row for one in outcomes for row in one.rows])
            pictures.append(table.accuracy_curves(outcomes, rows.folder / f"{name}-{data}"))
        rows.finish(*pictures)


def print_tables(files: list[Path]) -> None:
    """The tables of rows made earlier, one a data set, protocol and split."""
    from moml.paper.federated.table import in_order, print_federated

    rows = earlier_rows(files, "federated")
    key = lambda row: (row["dataset"], row["protocol"], row["setting"]["split"])
    try:
        for place in dict.fromkeys(map(key, rows)):
            print_federated(in_order([row for row in rows if key(row) == place]))
    except KeyError as error:
        raise DataError(f"a row of table 'federated' without {error}") from error


@dataclass(frozen=True, kw_only=True)
class Memory(ImageExperiment):
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

    def run(self) -> None:
        """Train every study; rows are on disk after each of them."""
        from moml.paper.cells import choose
        from moml.paper.federated import memory
        from moml.paper.federated.cells import PROTOCOLS, cells
        from moml.paper.federated.data import images_of, problem_of

        choose("memory", self.memory, [*memory.MEMORIES])
        data, h, clients = self.dataset, self.local_steps, self.clients_per_round
        cells("strict", data, [h], [clients], None)
        rows = self.start("reproduce-federated-memory")
        problem = problem_of(*images_of(data, self.data_dir), data, PROTOCOLS["strict"])
        for k, kind in itertools.product(self.k, self.memory):
            study = memory.Study(data, k, kind, h, clients, self.rounds)
            rows.add(memory.measured(study, problem, self.seeds, progress=True))
        memory.print_memory(rows.all)
        rows.finish(memory.memory_figure(rows.all, rows.folder / f"memory-{data}"))
