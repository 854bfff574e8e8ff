"""Result rows as a table on a terminal, and as a JSON file."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moml.errors import ConfigError


def print_rows(rows: Sequence[dict[str, Any]], title: str) -> None:
    """A table of result rows: setting, method, mean and spread, what was lost, what it took."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for name in (
        *rows[0]["setting"],
        rows[0]["metric"].replace("_", " "),
        "seeds",
        "lost",
        "samples",
        "seconds",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        setting = (f"{value:.3g}" for value in row["setting"].values())
        score = "-" if row["mean"] is None else f"{row['mean']:.3f} ± {row['std']:.3f}"
        counts = (str(row["seeds"]), str(row["lost"]), f"{row['samples']:,}")
        table.add_row(row["method"], *setting, score, *counts, f"{row['seconds']:.1f}")
    Console().print(table)


def write_json(rows: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Rows as a JSON array; the file appears whole or not at all."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(json.dumps(list(rows), indent=1) + "\n")
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
