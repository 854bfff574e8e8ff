"""`moml train --data`, `moml evaluate`, `moml predict`, `moml adapt`: a user's own table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from moml.cli.validation import rows_file, some


@dataclass(frozen=True)
class Train:
    """Learn from your own table: many users, machines or shops with a few rows each."""

    data: Path
    """Parquet, CSV or Arrow file, or a folder of such files with the same columns."""
    task: str
    """Column that says whose row it is."""
    target: str
    """Column to predict: a number, or a class."""
    out: Path
    """Folder of the run; it must not be there yet."""
    order: str | None = None
    """Column of numbers or dates: a task's earlier rows are known before its later ones."""
    weight: str | None = None
    """Column with the rows' weights."""
    inputs: list[str] | None = None
    """Columns to predict from; by default all others."""
    exclude: list[str] | None = None
    """Columns to leave out."""
    classification: bool = False
    """Take a target of numbers as classes."""
    missing: Literal["impute", "refuse"] = "impute"
    """Missing inputs: the training mean beside an indicator, or an error."""
    shots: int | None = None
    """Rows that a new task will bring; by default half of what tasks have, at most 10."""
    hold_out: float = 0.2
    """Share of the tasks that are scored on by a model that has not learned from them."""
    refit: bool = True
    """Train once more after that, on all tasks, if they are at most 5,000: that model is kept."""
    members: int = 3
    """Networks of each kind that are averaged."""
    iterations: int | None = None
    """Training steps; by default as many as the table needs."""
    seed: int = 0
    """Seed of everything random."""
    model: str | None = None
    """Your own network, MODULE:FUNCTION; it is called with the numbers of inputs and outputs."""
    json: Path | None = None
    """File for the scores' rows."""


@dataclass(frozen=True)
class Evaluate:
    """Scores of a table's run on held-out tasks, by number of known rows, beside plain rivals."""

    run: tyro.conf.Positional[Path]
    """Its folder."""
    data: Path | None = None
    """Another table: its tasks that training has not seen are scored."""
    model: str | None = None
    """MODULE:FUNCTION, if the run has a network of your own."""
    json: Path | None = None
    """File for the rows."""


@dataclass(frozen=True)
class Predict:
    """Predictions for rows of any task: known ones by their own parameters, others by the start."""

    run: tyro.conf.Positional[Path]
    """Folder of a run, or of `moml adapt`."""
    data: Path
    """Table with the rows."""
    out: Path
    """File for the rows with a column `prediction`; the format goes by its ending."""
    adapt_on: Path | None = None
    """Table with later rows of known tasks, or rows of new ones, to learn from first."""
    interval: float | None = None
    """Add columns `lower` and `upper` that hold this share of the targets, as 0.9."""
    model: str | None = None
    """MODULE:FUNCTION, if the run has a network of your own."""


@dataclass(frozen=True)
class Adapt:
    """Personal models of a table's tasks, one file each; `moml predict` takes the folder."""

    run: tyro.conf.Positional[Path]
    """Folder of a run, or of an earlier `moml adapt`."""
    data: Path
    """Table with later rows of known tasks, or rows of new ones."""
    out: Path
    """Folder for the models; it must not be there yet."""
    model: str | None = None
    """MODULE:FUNCTION, if the run has a network of your own."""


def train(arguments: Sequence[str]) -> None:
    """Train on a table, say what was understood of it, and print the scores."""
    from moml.tabular.tables import train_table

    command = tyro.cli(Train, args=arguments, prog="moml train")
    file = rows_file(command.json)
    some("inputs", command.inputs)
    run = train_table(
        command.data,
        command.out,
        task=command.task,
        target=command.target,
        order=command.order,
        weight=command.weight,
        inputs=command.inputs,
        exclude=command.exclude or (),
        classification=command.classification,
        missing=command.missing,
        shots=command.shots,
        hold_out=command.hold_out,
        members=command.members,
        iterations=command.iterations,
        seed=command.seed,
        refit=command.refit,
        model=command.model,
        progress=True,
        say=lambda line: print(line, flush=True),
    )
    report(run.evaluation, run.about["target"], file)
    print(f"folder: {command.out}")


def evaluate(command: Evaluate) -> None:
    """Print the scores of a run."""
    from moml.tabular.tables import evaluate_table, load_table_run

    file = rows_file(command.json)
    run = load_table_run(command.run, command.model)
    report(evaluate_table(run, command.data, progress=True), run.about["target"], file)


def predict(command: Predict) -> None:
    """Write the predictions, and say what there is to say about them."""
    from moml.tabular.tables import load_table_run, predict_file

    remarks = predict_file(
        load_table_run(command.run, command.model),
        command.data,
        command.out,
        adapt_on=command.adapt_on,
        interval=command.interval,
        progress=True,
    )
    for line in remarks:
        print(line)
    print(f"predictions: {command.out}")


def adapt(command: Adapt) -> None:
    """Write the personal models."""
    from moml.tabular.tables import adapt_table, load_table_run

    made = adapt_table(
        load_table_run(command.run, command.model), command.data, command.out, progress=True
    )
    print(f"{len(made.known.place):,} personal models: {command.out}")


def report(rows: list[dict], target: str, file: Path | None) -> None:
    """Print the scores, and write their rows where asked."""
    from moml.report.terminal.table_scores import print_scores, verdict
    from moml.storage.files import write_json

    print_scores(rows, target)
    print(verdict(rows))
    if file is not None:
        write_json(rows, file)
        print(f"rows:   {file}")
