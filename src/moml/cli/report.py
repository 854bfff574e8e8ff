"""`moml report`."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from moml.cli.plugins import Plugins
from moml.cli.validation import say


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
