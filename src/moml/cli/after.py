"""`moml export`, `moml forget`: what comes after training."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from moml.cli.border import some


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
    from moml.run.export import export as exported

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
    from moml.run.forget import forget as forgotten

    some("task", command.task)
    for line in forgotten(command.run, command.task):
        print(line)
