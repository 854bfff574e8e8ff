"""`moml export`, `moml forget`, `moml train --from`: what comes after training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from moml.cli.tables import report
from moml.cli.validation import rows_file, some


@dataclass(frozen=True)
class Export:
    """A run as a folder that adapts and predicts with numpy alone: no jax, no moml."""

    run: tyro.conf.Positional[Path]
    """Folder of a run, or of `moml adapt`."""
    out: Path
    """Folder for the export; it must not be there yet."""
    tasks: bool = True
    """Of a table: with the personal parameters of the tasks that the run knows."""


def export(command: Export) -> None:
    """Write the export, and say how it is used."""
    from moml.serving.export import export as exported

    out = exported(command.run, command.out, tasks=command.tasks)
    print(f"export: {out}")


@dataclass(frozen=True)
class Forget:
    """Remove a person: id, memory and personal parameters leave every file of a run."""

    run: tyro.conf.Positional[Path]
    """Folder of a run, of `moml adapt` or of `moml export`."""
    task: list[str]
    """Ids of a table's tasks, or numbers of a run's; several may be given."""


def forget(command: Forget) -> None:
    """Remove them, and say what cannot be removed."""
    from moml.serving.forget import forget as forgotten

    some("task", command.task)
    for line in forgotten(command.run, command.task):
        print(line)


@dataclass(frozen=True)
class GoOn:
    """Go on from a table's run with new tasks and rows; columns and settings are the run's."""

    from_: Annotated[Path, tyro.conf.arg(name="from")]
    """Folder of the run; it stays as it is."""
    data: Path
    """Table with rows of new tasks, or later rows of known ones."""
    out: Path
    """Folder of the new run; it must not be there yet."""
    hold_out: float = 0.2
    """Share of the tasks, of those that are new, that are scored on and not learned from."""
    iterations: int | None = None
    """Training steps; by default a quarter of what a new training takes."""
    seed: int = 0
    """Seed of everything random."""
    model: str | None = None
    """MODULE:FUNCTION, if the run has a network of your own."""
    json: Path | None = None
    """File for the scores' rows."""


def go_on(arguments: Sequence[str]) -> None:
    """Train on, say what was understood of the table, and print the scores."""
    from moml.tabular.continuation import go_on_table

    command = tyro.cli(GoOn, args=arguments, prog="moml train")
    file = rows_file(command.json)
    run = go_on_table(
        command.from_,
        command.data,
        command.out,
        hold_out=command.hold_out,
        iterations=command.iterations,
        seed=command.seed,
        model=command.model,
        progress=True,
        say=lambda line: print(line, flush=True),
    )
    report(run.evaluation, run.about["target"], file)
    print(f"folder: {command.out}")
