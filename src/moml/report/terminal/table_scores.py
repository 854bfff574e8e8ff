"""Scores of the models of a user's own table."""

from collections.abc import Sequence

from moml.report.terminal.rows import print_table
from moml.types import Record

PAYS = 0.99  # personalisation pays below this share of the best score without adaptation


def print_scores(rows: Sequence[Record], target: str) -> None:
    """Print a table per metric: a line per model, a column per number of known rows."""
    for metric in dict.fromkeys(row["metric"] for row in rows):
        first = next(row for row in rows if row["metric"] == metric)
        about = f"{plural(first['tasks'], 'held-out task')}, {plural(first['rows'], 'row')}"
        print(f"{metric.replace('_', ' ')} of {target} by known rows: {about}", flush=True)
        shots, scores = score_grid(rows, metric)
        columns = ["model", *map(str, shots)]
        print_table(None, columns, [[name, *cells] for name, cells in scores.items()], columns)


def score_grid(rows: Sequence[Record], metric: str) -> tuple[list[int], dict[str, list[str]]]:
    """Numbers of known rows, and for each model `mean ± std` at these numbers."""
    mine = [row for row in rows if row["metric"] == metric]
    scores: dict[str, list[str]] = {}
    for row in mine:
        scores.setdefault(row["model"], []).append(f"{row['mean']:.4g} ± {row['std']:.2g}")
    return list(dict.fromkeys(row["shots"] for row in mine)), scores


def verdict(rows: Sequence[Record]) -> str:
    """Compare the personal model, with most known rows, to the best score without adaptation."""
    metric = "rmse" if any(row["metric"] == "rmse" for row in rows) else "log_loss"
    scores = {(row["model"], row["shots"]): row["mean"] for row in rows if row["metric"] == metric}
    most = max(row["shots"] for row in rows)
    after = scores["personal", most]
    before = min(scores["personal", 0], scores["pooled", 0])
    both = f"{after:.4g} after {plural(most, 'row')}, {before:.4g} without any"
    result = f"{metric.replace('_', ' ')} {both}"
    if after > PAYS * before:
        return f"personalisation does not pay on this table: {result}"
    name = min(("per-task", "shrunken-mean"), key=lambda model: scores[model, most])
    if scores[name, most] < after:
        result += f"; but {name} alone has {scores[name, most]:.4g}"
    return f"personalisation pays: {result}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "row"), plural(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
