"""Result rows as a table on a terminal."""

import sys
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table

from moml.types import Record


def console() -> Console:
    """Standard output; 110 columns wide where it is a file."""
    return Console(width=None if sys.stdout.isatty() else 110)


def print_table(
    title: str | None,
    columns: Sequence[str],
    lines: Iterable[Sequence[str]],
    no_wrap: Collection[str] = (),
) -> None:
    """Print a table; the first column is aligned left, all others right."""
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", no_wrap=name in no_wrap)
    for line in lines:
        table.add_row(*line)
    console().print(table)


def _number(value: float | int | None, form: str = ".3g") -> str:
    return "-" if value is None else f"{value:{form}}"


def _mean_std(mean: float | int | None, std: float | int | None, form: str = ".3f") -> str:
    return "-" if mean is None else f"{mean:{form}} ± {std:{form}}"


def print_rows(rows: Sequence[Record], title: str) -> None:
    """Print the setting, method, mean, standard deviation, lost seeds and cost of each row."""
    score = rows[0]["metric"].replace("_", " ")
    columns = ("method", *rows[0]["setting"], score, "seeds", "lost", "samples", "seconds")
    spread = lambda row: _mean_std(row["mean"], row["std"])
    lines = [
        (row["method"], *map(_number, row["setting"].values()),
         spread(row) if row["seeds"] > 1 else _number(row["mean"], ".3f"),
         str(row["seeds"]), str(row["lost"]), f"{row['samples']:,}", f"{row['seconds']:.1f}")
        for row in rows
    ]  # fmt: skip
    print_table(title, columns, lines, no_wrap=[score])


def print_beside_paper(
    rows: Sequence[Record], title: str, ms: Sequence[float | None], paper_ms: Sequence[float | None]
) -> None:
    """Print our scores and milliseconds per iteration beside the printed ones."""
    columns = ("method", *rows[0]["setting"], "ours", "printed", "lost", "ms/it", "printed ms/it")
    lines = [
        (row["method"], *map(_number, row["setting"].values()),
         _mean_std(row["mean"], row["std"]), _mean_std(row["paper_mean"], row["paper_std"]),
         f"{row['lost']} of {row['seeds']}", _number(mine, ".4f"), _number(theirs, ".3f"))
        for row, mine, theirs in zip(rows, ms, paper_ms, strict=True)
    ]  # fmt: skip
    print_table(title, columns, lines)


def print_accuracies(rows: Sequence[Record], title: str) -> None:
    """Print accuracies beside the printed ones, with the iterations and seconds of each row."""
    both = ("ours, %", "printed, %")
    columns = ("method", "eta", "beta", "iterations", *both, "lost", "seconds")
    lines = [
        (row["method"],
         *(_number(row["setting"].get(n) if row["iterations"] else None) for n in ("eta", "beta")),
         f"{row['iterations']:,}", _mean_std(row["mean"], row["std"], ".2f"),
         _mean_std(row["paper_mean"], row["paper_std"], ".2f"),
         f"{row['lost']} of {row['seeds']}", f"{row['seconds']:.1f}")
        for row in rows
    ]  # fmt: skip
    print_table(title, columns, lines, no_wrap=columns)


def print_settings(rows: Sequence[Record], title: str) -> None:
    """Print one metric of a study: a line per method and S2, a column per eta."""
    lines: dict[tuple[str, str], str] = {}
    for row in rows:
        key = row["setting"]["s2"], row["method"]
        cell = f"{_number(row['mean'], '9.1e')} (eta {row['setting']['eta']:.3g})"
        lines[key] = lines.get(key, "") + f"{cell:<26}"
    print(f"\n{title}; {rows[0]['seeds']} seeds")
    for (s2, method), cells in lines.items():
        print(f"  S2 {s2:<12}{method:<21}{cells}")
