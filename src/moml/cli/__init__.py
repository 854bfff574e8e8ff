"""The command line. Exit codes: 0 done, 2 user error, 3 diverged, 130 / 143 interrupted."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, assert_never

import tyro

import moml
from moml.cli import after, runs, tables
from moml.cli.data import Data, data
from moml.cli.flower import Flower, flower
from moml.cli.report import Report, report
from moml.cli.reproduce import Table, reproduce
from moml.cli.validation import places
from moml.errors import MomlError, check_count


@dataclass(frozen=True)
class Demo:
    """Compare MAML, MOML v1 and the recommended method on sine waves, with a picture."""

    out: Path = Path("demo")
    """Folder for the picture and the rows."""
    iterations: int = 40_000
    """Training steps of every method."""
    seeds: int = 5
    """Number of seeds; their networks are trained as one program."""
    json: Path | None = None
    """File for the result rows; default rows.json in the folder."""


@dataclass(frozen=True)
class Methods:
    """List the methods by name."""


@dataclass(frozen=True)
class Reproduce:
    """Compute a table of the paper, or one of our own."""

    table: tyro.conf.OmitSubcommandPrefixes[Table]


def demo(command: Demo) -> None:
    """Train and score the methods, print the table, write the picture."""
    from moml.paper.sine.figure import curves_and_fits
    from moml.paper.sine.score import example_waves, fitted
    from moml.paper.sine.table import ENTRIES, run_entry
    from moml.report.terminal import print_rows
    from moml.storage.files import write_json

    iterations = check_count("iterations", command.iterations)
    seeds = check_count("seeds", command.seeds)
    folder, rows_file = places(command.out, command.json)
    trained, rows = {}, []
    for label in ENTRIES:
        trained[label], row = run_entry(label, iterations=iterations, seeds=seeds, progress=True)
        rows.append(row)
        write_json(rows, rows_file)
    waves = example_waves(1, 400)
    picture = curves_and_fits(
        {label: done.finite_curve() for label, done in trained.items() if done.curve},
        {"untrained": rows[0]["mean"]},
        {label: fitted(done.run, waves) for label, done in trained.items()},
        waves,
        folder / "demo",
    )
    print_rows(rows, "Sine regression, K = 1: error on 500 unseen tasks")
    print(f"picture: {picture}\nrows:    {rows_file}")


def methods(command: Methods) -> None:
    """Print a line for each method."""
    for name in moml.methods.METHODS:
        print(f"{name:<14}{moml.methods.summary(name)}")


@dataclass(frozen=True)
class Train:
    """Train one model in a run folder; with --data, on your own table."""


@dataclass(frozen=True)
class Sweep:
    """Train a grid of settings with several seeds as one program."""


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[runs.Resume, tyro.conf.subcommand("resume")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[runs.Score, tyro.conf.subcommand("score")]
    | Annotated[tables.Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[tables.Predict, tyro.conf.subcommand("predict")]
    | Annotated[tables.Adapt, tyro.conf.subcommand("adapt")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[after.Export, tyro.conf.subcommand("export")]
    | Annotated[after.Forget, tyro.conf.subcommand("forget")]
    | Annotated[runs.Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Flower, tyro.conf.subcommand("flower")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Methods, tyro.conf.subcommand("methods")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
)


def run(arguments: Sequence[str] | None = None) -> None:
    """Parse and run one command; errors are raised as exceptions."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = {word.split("=")[0] for word in words}
    if words[:1] == ["train"] and "--data" in options:
        (after.go_on if "--from" in options else tables.train)(words[1:])
        return
    if words[:1] in (["train"], ["sweep"]):  # their options depend on the configuration
        (runs.train if words[0] == "train" else runs.sweep)(words[1:])
        return
    command = tyro.cli(Command, args=words, prog="moml", description=moml.__doc__)
    match command:
        case Demo():
            demo(command)
        case Methods():
            methods(command)
        case Reproduce():
            reproduce(command.table)
        case runs.Resume():
            runs.resume(command)
        case runs.Score():
            runs.score(command)
        case tables.Evaluate():
            tables.evaluate(command)
        case tables.Predict():
            tables.predict(command)
        case tables.Adapt():
            tables.adapt(command)
        case Report():
            report(command)
        case after.Export():
            after.export(command)
        case after.Forget():
            after.forget(command)
        case runs.Doctor():
            runs.doctor(command)
        case Flower():
            flower(command)
        case Data():
            data(command)
        case Train() | Sweep():
            raise AssertionError("handled above")
        case _:
            assert_never(command)


def main() -> None:
    """The program `moml`."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"moml {moml.__version__}")
        return
    try:
        run(arguments)
    except MomlError as error:
        print(f"moml: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        print("moml: interrupted", file=sys.stderr)
        sys.exit(130)
