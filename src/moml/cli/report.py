"""`moml report`."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Report:
    """One page of HTML for runs, sweeps and tables' runs; two or more stand side by side."""

    runs: tyro.conf.Positional[list[Path]]
    """Their folders."""
    out: Path = Path("report.html")
    """File for the page; it needs nothing else, and no network."""
    scores: bool = True
    """Compute scores of the newest models, and what else takes their data and their networks."""


def report(command: Report) -> None:
    """Write the page, and say where it is."""
    from moml.report.page.document import report as written

    print(f"page: {written(command.runs, command.out, scores=command.scores, progress=True)}")
