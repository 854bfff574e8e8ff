"""`moml reproduce`: the paper's tables, and ours, each by one command."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from moml.cli.experiments import budget, federated, leaderboard, oneshot
from moml.cli.experiments.experiment import Command, Experiment
from moml.cli.validation import say
from moml.errors import check_count


@dataclass(frozen=True, kw_only=True)
class Sine(Experiment):
    """The sine table: every method at K = 1 and 3, beside the paper's figures."""

    protocol: list[str] = field(default_factory=lambda: ["strict"])
    """released, released-fresh, paper, strict; several may be given."""
    k: list[int] = field(default_factory=lambda: [1, 3])
    """Samples in each of S1, S2, S3."""
    methods: list[str] | None = None
    """Rows of the table; all of them by default."""
    seeds: int = 5
    """Trained side by side."""
    iterations: int = 40_000
    """Of MAML; the other methods get as many samples."""

    def run(self) -> None:
        """Train and test every cell; rows are on disk after each of them."""
        from moml.paper.sine import table
        from moml.paper.sine.figure import table_figures
        from moml.report.terminal import print_beside_paper

        todo = {name: table.cells(name, self.k, self.methods) for name in self.protocol}
        rows, pictures = self.start("reproduce-sine"), []
        run_cell = lambda cell: table.run_cell(
            cell, seeds=self.seeds, budget=self.iterations, progress=True
        )
        outcomes = {name: rows.run(cells, run_cell) for name, cells in todo.items()}
        for name, mine in outcomes.items():
            table_rows = [one.rows[0] for one in mine]
            print_beside_paper(table_rows, f"Sine, protocol {name}")
            pictures += table_figures(mine, rows.folder)
        rows.finish(*pictures)


@dataclass(frozen=True, kw_only=True)
class Search(Command):
    """Search every method's step sizes on validation tasks; `strict` uses what this finds."""

    k: list[int] = field(default_factory=lambda: [1, 3])
    """Samples in each of S1, S2, S3."""
    only_v1: bool = False
    """Just v1 and MAML with both curvatures and outer rules: 1,120 trainings a K."""
    only: list[str] | None = None
    """Just these variants, by the labels that the command prints."""
    seeds: int = 5
    """Trained side by side, with the whole grid."""
    iterations: int = 40_000
    """Of MAML; the other methods get as many samples."""
    json: Path = Path("settings.json")
    """File for the step sizes that were found; what it has of other variants stays."""

    def run(self) -> None:
        """Search, print each variant's best, and write the file of step sizes."""
        from moml.paper.cells import choose
        from moml.paper.search import read_settings, write_settings
        from moml.paper.sine.search import KEYS, OTHERS, V1, add_to, search_all
        from moml.storage.files import writable_folder

        writable_folder(self.json.parent)
        variants = {one.label: one for one in (*V1, *(() if self.only_v1 else OTHERS))}
        chosen = [variants[label] for label in choose("only", self.only, [*variants])]
        content = read_settings(self.json, KEYS)
        command = f"moml reproduce search --seeds {self.seeds} --iterations {self.iterations}"
        command += "".join(f' --only "{label}"' for label in self.only or ())
        for k in self.k:
            began = time.monotonic()
            for found in search_all(chosen, k, self.seeds, self.iterations):
                content = add_to(content, found, command)
                write_settings(content, self.json)
                row = found.rows[0]
                score = f"{row['mean']:.3f} ± {row['std']:.3f}" if not row["lost"] else "all lost"
                names = [name for name in ("eta", "beta", "gamma") if name in row]
                where = " ".join(f"{name} {row[name]:g}" for name in names)
                say(f"K = {k} {found.variant.label:<32} best {score} at {where}", flush=True)
            say(f"K = {k}: {time.monotonic() - began:.1f} s in all", flush=True)
        say(f"step sizes: {self.json}")


@dataclass(frozen=True, kw_only=True)
class Shots(Experiment):
    """When memory pays: the error over beta and shots, with the matching rule drawn across."""

    full: bool = False
    """The whole study (K 1, 2, 5; noise 0, 1; 1 to 10 steps; more tasks): minutes on a GPU."""
    k: list[int] | None = None
    """Samples in each of S1, S2, S3; 1, 2 and 5 by default."""
    seeds: int | None = None
    """Trained side by side; 2, or 3 in the full form."""
    iterations: int | None = None
    """Training steps; 10,000, or 40,000 in the full form."""
    both_ways: bool = False
    """Each visit both ways, as the method moml goes."""
    family: list[str] = field(default_factory=lambda: ["sine"])
    """Tasks: sine, bump, ramp, linear (where S2 = S1 is the only bias)."""
    rows: Path | None = None
    """Rows made earlier: judge and draw these, train nothing."""

    def run(self) -> None:
        """Train and test every surface; rows are on disk after each of them."""
        from moml.paper.cells import choose
        from moml.paper.shots import study, verdict
        from moml.paper.shots.families import FAMILIES
        from moml.paper.shots.verdict import print_verdicts, shots_figure
        from moml.storage.files import read_json

        plan = study.FULL if self.full else study.Plan()
        plan = replace(
            plan, ks=tuple(self.k or plan.ks), seeds=self.seeds or plan.seeds,
            iterations=self.iterations or plan.iterations, both_ways=self.both_ways,
            families=tuple(choose("family", self.family, FAMILIES)),
        )  # fmt: skip
        rows = self.start("reproduce-shots")
        if self.rows is not None:
            surfaces, plan = verdict.surfaces_of(read_json(self.rows))
            rows.file = self.rows
        else:
            surfaces = []
            for place in plan.places():
                surfaces.append(study.surface(plan, place, progress=True))
                rows.add(verdict.rows_of(surfaces[-1], plan))
        print_verdicts(surfaces, plan)
        first = [found for found in surfaces if found.place[:2] == surfaces[0].place[:2]]
        rows.finish(shots_figure(first, rows.folder / "shots"))


@dataclass(frozen=True, kw_only=True)
class Theory(Experiment):
    """The theorem as a measurement: MAML's bias floor stays, that of memory falls with eta."""

    full: bool = False
    """Three eta down to 0.000125, up to 3,200,000 iterations: minutes instead of one."""
    methods: list[str] | None = None
    """Lines of the table; all of them by default."""
    seeds: int = 3
    """Trained side by side."""
    iterations: int | None = None
    """Of v1 at every eta, instead of the form's own; the others get as many samples."""
    rates: bool = False
    """Instead, the slope of the gap over samples, beside the paper's Tables 1 and 2."""
    horizons: int = 5
    """With --rates: lengths of training, each four times the last one in v1's iterations."""

    def run(self) -> None:
        """Measure every line; rows are on disk after each of them."""
        from moml.paper.theory import study
        from moml.paper.theory.figure import theory_figure
        from moml.report.terminal import print_settings

        if self.rates:
            return self.run_rates()
        plan = study.FULL if self.full else study.QUICK
        if self.iterations is not None:
            plan = dict.fromkeys(plan, self.iterations)
        lines, rows = study.lines_of(self.methods), self.start("reproduce-theory")
        done = lambda measured: rows.add(study.rows_of(measured))
        found = study.run_theory(lines, plan, seeds=self.seeds, progress=True, done=done)
        for metric, title in study.TITLES.items():
            chosen = [row for row in rows.all if row["metric"] == metric]
            if chosen:
                print_settings(chosen, title)
        rows.finish(theory_figure(found, rows.folder / "theory"))

    def run_rates(self) -> None:
        """Run every line at every horizon; rows are on disk after each line."""
        from moml.paper.theory import rates

        check_count("horizons", self.horizons, 2)
        lines, rows, curves = rates.rates_of(self.methods), self.start("reproduce-rates"), []
        found = rates.run_rates(lines, horizons=self.horizons, seeds=self.seeds, progress=True)
        for curve in found:
            curves.append(curve)
            rows.add(rates.rows_of(curve))
        rates.print_rates(curves)
        rows.finish(rates.rates_figure(curves, rows.folder / "rates"))


Table = (
    Annotated[Sine, tyro.conf.subcommand("sine")]
    | Annotated[Shots, tyro.conf.subcommand("shots")]
    | Annotated[budget.Budget, tyro.conf.subcommand("budget")]
    | Annotated[Theory, tyro.conf.subcommand("theory")]
    | Annotated[Search, tyro.conf.subcommand("search")]
    | Annotated[oneshot.Oneshot, tyro.conf.subcommand("oneshot")]
    | Annotated[oneshot.OneshotSearch, tyro.conf.subcommand("oneshot-search")]
    | Annotated[federated.Federated, tyro.conf.subcommand("federated")]
    | Annotated[federated.Memory, tyro.conf.subcommand("federated-memory")]
    | Annotated[leaderboard.Leaderboard, tyro.conf.subcommand("leaderboard")]
)


@dataclass(frozen=True)
class Reproduce:
    """Compute a table of the paper, or one of our own."""

    table: tyro.conf.OmitSubcommandPrefixes[Table]


def reproduce(command: Reproduce) -> None:
    """Make one of the tables."""
    command.table.check()
    command.table.run()
