"""`moml export`, `moml forget`: what comes after training."""

from dataclasses import dataclass
from pathlib import Path

import tyro


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
