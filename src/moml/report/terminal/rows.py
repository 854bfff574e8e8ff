"""Result rows as a table on a terminal."""

import sys
from collections.abc import Sequence
from typing import Any


def console() -> Any:
    """Standard output; wide where it is a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 110)


def print_rows(rows: Sequence[dict[str, Any]], title: str) -> None:
    """A table of result rows: setting, method, mean and spread, what was lost, what it took."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("method")
    score = rows[0]["metric"].replace("_", " ")
    for name in (*rows[0]["setting"], score, "seeds", "lost", "samples", "seconds"):
        table.add_column(name, justify="right", no_wrap=name == score)
    for row in rows:
        setting = (f"{value:.3g}" for value in row["setting"].values())
        spread = f" ± {row['std']:.3f}" if row["seeds"] > 1 and row["mean"] is not None else ""
        score = "-" if row["mean"] is None else f"{row['mean']:.3f}{spread}"
        counts = (str(row["seeds"]), str(row["lost"]), f"{row['samples']:,}")
        table.add_row(row["method"], *setting, score, *counts, f"{row['seconds']:.1f}")
    console().print(table)


def print_beside_paper(
    rows: Sequence[dict[str, Any]],
    title: str,
    ms: Sequence[float | None],
    paper_ms: Sequence[float | None],
) -> None:
    """Our figures beside the printed ones, milliseconds per iteration included."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for name in (*rows[0]["setting"], "ours", "printed", "lost", "ms/it", "printed ms/it"):
        table.add_column(name, justify="right")
    pair = lambda mean, std: "-" if mean is None else f"{mean:.3f} ± {std:.3f}"
    for row, mine, theirs in zip(rows, ms, paper_ms, strict=True):
        table.add_row(
            row["method"],
            *(f"{value:.3g}" for value in row["setting"].values()),
            pair(row["mean"], row["std"]),
            pair(row["paper_mean"], row["paper_std"]),
            f"{row['lost']} of {row['seeds']}",
            "-" if mine is None else f"{mine:.4f}",
            "-" if theirs is None else f"{theirs:.3f}",
        )
    console().print(table)


def print_accuracies(rows: Sequence[dict[str, Any]], title: str) -> None:
    """Accuracies beside the printed ones, with what each row took."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("method", no_wrap=True)
    for name in ("eta", "beta", "iterations", "ours, %", "printed, %", "lost", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    pair = lambda mean, std: "-" if mean is None else f"{mean:.2f} ± {std:.2f}"
    number = lambda value: "-" if value is None else f"{value:.3g}"
    for row in rows:
        trained = row["iterations"] > 0
        table.add_row(
            row["method"],
            *(number(row["setting"].get(name) if trained else None) for name in ("eta", "beta")),
            f"{row['iterations']:,}",
            pair(row["mean"], row["std"]),
            pair(row["paper_mean"], row["paper_std"]),
            f"{row['lost']} of {row['seeds']}",
            f"{row['seconds']:.1f}",
        )
    console().print(table)


def print_settings(rows: Sequence[dict[str, Any]], title: str) -> None:
    """One metric of a study: a line a method and S2, a column an eta, in the order of the rows."""
    lines: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        score = "-" if row["mean"] is None else f"{row['mean']:9.1e}"
        at = lines.setdefault((row["setting"]["s2"], row["method"]), [])
        at.append(f"{score} (eta {row['setting']['eta']:.3g})")
    print(f"\n{title}; {rows[0]['seeds']} seeds")
    for (s2, method), cells in lines.items():
        print(f"  S2 {s2:<12}{method:<21}" + "".join(f"{cell:<26}" for cell in cells))
