"""`moml report`, `moml export`, `moml forget`: commands for finished runs."""

from dataclasses import dataclass, field
from pathlib import Path

import tyro

from moml.cli.plugins import Plugins
from moml.cli.validation import say, some


@dataclass(frozen=True)
class Report(Plugins):
    """Write runs, sweeps and runs of tables as one HTML page, side by side."""

    runs: tyro.conf.Positional[list[Path]]
    """Folders of the runs."""
    out: Path = Path("report.html")
    """File for the page; it is self-contained and loads nothing."""
    score: bool = False
    """Also compute what the runs have not stored: scores by known samples, fits and tracking errors
    of the newest models. This reads their data."""


def report(command: Report) -> None:
    """Write the page and print its path."""
    from moml.report.page.document import report as write

    say(f"page: {write(command.runs, command.out, score=command.score, progress=True)}")


@dataclass(frozen=True)
class Export(Plugins):
    """Export a run to a folder that adapts and predicts with numpy only: no jax, no moml."""

    run: tyro.conf.Positional[Path]
    """Folder of a run, or of `moml adapt`."""
    out: Path
    """Folder for the export; it must not exist."""
    tasks: bool = True
    """Of a table: include the personal parameters of the tasks that the run knows."""
    client: int | None = None
    """Of a federated run: the model that this client keeps. By default the server's model."""
    format: str = "numpy"
    """numpy, or onnx: also the network as an ONNX graph, with personal parameters as inputs."""


def export(command: Export) -> None:
    """Write the export."""
    from moml.serving.export import export as export_run
    from moml.serving.export_network import keeps_models

    out = export_run(
        command.run, command.out, tasks=command.tasks, client=command.client, format=command.format
    )
    say(f"export: {out}")
    if keeps_models(command.run):
        one = f"the one that client {command.client} keeps"
        common = "the global one; --client I exports the one that client I keeps"
        say(f"model:  {common if command.client is None else one}")


@dataclass(frozen=True)
class Forget(Plugins):
    """Remove tasks: ids, memories and personal parameters, from every file of a run."""

    run: tyro.conf.Positional[Path]
    """Folder of a run, of `moml adapt` or of `moml export`."""
    task: list[str] = field(default_factory=list)
    """Ids of a table's tasks, or numbers of a run's tasks."""
    category: list[str] = field(default_factory=list)
    """Of a table: categories of input columns, each as COLUMN=CATEGORY; unknown from then on."""


def forget(command: Forget) -> None:
    """Remove tasks, and print what cannot be removed."""
    from moml.serving.forget import forget as forget_tasks

    if not command.category:
        some("task", command.task)
    for line in forget_tasks(command.run, command.task, command.category):
        say(line)
