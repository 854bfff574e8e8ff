"""`moml reproduce`: the paper's tables, and ours, each by one command."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from moml.cli import federated, oneshot
from moml.cli.validation import places, set_aside, some
from moml.errors import ConfigError, check_count


@dataclass(frozen=True)
class Sine:
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
    out: Path = Path("reproduce-sine")
    """Folder for pictures and rows."""
    json: Path | None = None
    """File for the rows; by default rows.json in the folder."""


@dataclass(frozen=True)
class Search:
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


@dataclass(frozen=True)
class Shots:
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
    rows: Path | None = None
    """Rows made earlier: judge and draw these, train nothing."""
    out: Path = Path("reproduce-shots")
    """Folder for the picture and the rows."""
    json: Path | None = None
    """File for the rows; by default rows.json in the folder."""


@dataclass(frozen=True)
class Theory:
    """The theorem as a measurement: MAML's bias floor stays, that of memory falls with eta."""

    full: bool = False
    """Three eta down to 0.000125, up to 3,200,000 iterations: minutes instead of one."""
    methods: list[str] | None = None
    """Lines of the table; all of them by default."""
    seeds: int = 3
    """Trained side by side."""
    iterations: int | None = None
    """Of v1 at every eta, instead of the form's own; the others get as many samples."""
    out: Path = Path("reproduce-theory")
    """Folder for the picture and the rows."""
    json: Path | None = None
    """File for the rows; by default rows.json in the folder."""


Table = (
    Annotated[Sine, tyro.conf.subcommand("sine")]
    | Annotated[Shots, tyro.conf.subcommand("shots")]
    | Annotated[Theory, tyro.conf.subcommand("theory")]
    | Annotated[Search, tyro.conf.subcommand("search")]
    | Annotated[oneshot.Oneshot, tyro.conf.subcommand("oneshot")]
    | Annotated[oneshot.OneshotSearch, tyro.conf.subcommand("oneshot-search")]
    | Annotated[federated.Federated, tyro.conf.subcommand("federated")]
    | Annotated[federated.Memory, tyro.conf.subcommand("federated-memory")]
)


def reproduce(table: Any) -> None:
    """Make one of the tables."""
    COMMANDS[type(table)](table)


def _counts(seeds: int, iterations: int, k: list[int]) -> None:
    check_count("seeds", seeds)
    check_count("iterations", iterations)
    some("k", k)
    for each in k:
        check_count("k", each)


def sine(command: Sine) -> None:
    """Train and test every cell; rows are on disk after each of them."""
    from moml.paper.sine import table
    from moml.paper.sine.protocols import PROTOCOLS
    from moml.paper.sine.score import example_waves
    from moml.report.figures import fitted_curves, learning_curves
    from moml.report.terminal.rows import print_beside_paper
    from moml.storage.files import write_json

    _counts(command.seeds, command.iterations, command.k)
    some("protocol", command.protocol)
    some("methods", command.methods)
    for name in command.protocol:
        if name not in PROTOCOLS:
            raise ConfigError(f"unknown protocol {name!r}; allowed: {', '.join(PROTOCOLS)}")
    todo = [
        cell for name in command.protocol for cell in table.cells(name, command.k, command.methods)
    ]
    folder, rows_file = places(command.out, command.json)
    set_aside(rows_file)
    outcomes, rows = [], []
    for cell in todo:
        outcome = table.run_cell(
            cell, seeds=command.seeds, budget=command.iterations, progress=True
        )
        outcomes.append(outcome)
        rows.append(table.row_of(outcome))
        write_json(rows, rows_file)
    for name in command.protocol:
        mine = [i for i, cell in enumerate(todo) if cell.protocol == name]
        speed = [outcomes[i].ms for i in mine]
        paper = [table.printed_ms(todo[i]) for i in mine]
        print_beside_paper([rows[i] for i in mine], f"Sine, protocol {name}", speed, paper)
        panels: dict[str, dict[str, Any]] = {f"K = {k}": {} for k in command.k}
        for i in mine:
            if outcomes[i].curve:
                panels[f"K = {todo[i].k}"][todo[i].method] = outcomes[i].curve
        pictures = [learning_curves(panels, folder / f"objective-{name}")]
        fits = {
            f"K = {k}": {todo[i].method: table.fitted(outcomes[i]) for i in mine if todo[i].k == k}
            for k in command.k
        }
        pictures.append(fitted_curves(fits, example_waves(), folder / f"fitted-{name}"))
        print("\n".join(f"picture: {picture}" for picture in pictures))
    print(f"rows:    {rows_file}")


def shots(command: Shots) -> None:
    """Train and test every surface; rows are on disk after each of them."""
    from moml.paper.shots import study
    from moml.paper.shots import verdict as judge
    from moml.paper.shots.figure import print_verdicts, shots_figure
    from moml.storage.files import read_json, write_json

    plan = study.FULL if command.full else study.Plan()
    ks = None if command.k is None else tuple(command.k)
    given: dict[str, Any] = {"ks": ks, "seeds": command.seeds, "iterations": command.iterations}
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    plan = replace(plan, both_ways=command.both_ways)
    _counts(plan.seeds, plan.iterations, list(plan.ks))
    folder, rows_file = places(command.out, command.json)
    if command.rows is not None:
        surfaces, plan = judge.surfaces_of(read_json(command.rows))
        rows_file = command.rows
    else:
        set_aside(rows_file)
        surfaces, rows = [], []
        for place in plan.places():
            found = study.surface(plan, place, progress=True)
            surfaces.append(found)
            rows += judge.rows_of(found, plan)
            write_json(rows, rows_file)
    print_verdicts(surfaces, plan)
    paper_tasks = [found for found in surfaces if found.place[:2] == ("sine", 25)]
    print(f"picture: {shots_figure(paper_tasks, study.SHOTS, folder / 'shots')}")
    print(f"rows:    {rows_file}")


def theory(command: Theory) -> None:
    """Measure every line; rows are on disk after each of them."""
    from moml.paper.theory import study
    from moml.paper.theory.figure import theory_figure
    from moml.report.terminal.rows import print_settings
    from moml.storage.files import write_json

    plan = study.FULL if command.full else study.QUICK
    if command.iterations is not None:
        plan = dict.fromkeys(plan, command.iterations)
    _counts(command.seeds, min(plan.values()), [1])
    some("methods", command.methods)
    study.check_lines(command.methods)
    folder, rows_file = places(command.out, command.json)
    set_aside(rows_file)
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        write_json(rows, rows_file)

    result = study.run_theory(
        full=command.full, seeds=command.seeds, progress=True, on_row=keep, plan=plan,
        methods=command.methods,
    )  # fmt: skip
    for metric, title in study.TITLES.items():
        chosen = [row for row in rows if row["metric"] == metric]
        if chosen:
            print_settings(chosen, title)
    print(f"picture: {theory_figure(result, folder / 'theory')}")
    print(f"rows:    {rows_file}")


def search(command: Search) -> None:
    """Search, print each variant's best, and write the file of step sizes."""
    from moml.paper.sine import search as searching
    from moml.storage.files import writable_folder

    _counts(command.seeds, command.iterations, command.k)
    writable_folder(command.json.parent)
    variants = [*searching.V1, *(() if command.only_v1 else searching.OTHERS)]
    labels = [variant.label for variant in variants]
    some("only", command.only)
    for label in command.only or ():
        if label not in labels:
            raise ConfigError(f"unknown variant {label!r}; allowed: {'; '.join(labels)}")
    variants = [v for v in variants if command.only is None or v.label in command.only]
    content = searching.read_settings(command.json)
    said = f"moml reproduce search --seeds {command.seeds} --iterations {command.iterations}"
    said += "".join(f' --only "{label}"' for label in command.only or ())
    for k in command.k:
        began = time.monotonic()
        for found in searching.search_all(variants, k, command.seeds, command.iterations):
            content = searching.add_to(content, [found], said)
            searching.write_settings(content, command.json)
            print(f"K = {k} {found.variant.label:<32} {_best(found.rows[0])}", flush=True)
        print(f"K = {k}: {time.monotonic() - began:.1f} s in all", flush=True)
    print(f"step sizes: {command.json}")


def _best(row: dict[str, Any]) -> str:
    score = "all lost" if row["mean"] is None else f"{row['mean']:.3f} ± {row['std']:.3f}"
    where = " ".join(f"{name} {row[name]:g}" for name in ("eta", "beta", "gamma") if name in row)
    return f"best {score} at {where}"


COMMANDS: dict[type, Callable[[Any], None]] = {
    Sine: sine,
    Shots: shots,
    Theory: theory,
    Search: search,
    oneshot.Oneshot: oneshot.oneshot,
    oneshot.OneshotSearch: oneshot.search,
    federated.Federated: federated.federated,
    federated.Memory: federated.memory,
}
