"""Scores of a user's own table, for people."""

from collections.abc import Sequence
from typing import Any

from moml.report.terminal.rows import console

PAYS = 0.99  # of the best without adaptation, or less


def print_scores(rows: Sequence[dict[str, Any]], target: str) -> None:
    """A table for each metric: a line a model, a column a number of known rows."""
    from rich.table import Table

    shots = list(dict.fromkeys(row["shots"] for row in rows))
    for metric in dict.fromkeys(row["metric"] for row in rows):
        mine = [row for row in rows if row["metric"] == metric]
        about = f"{_many(mine[0]['tasks'], 'held-out task')}, {_many(mine[0]['rows'], 'row')}"
        print(f"{metric.replace('_', ' ')} of {target} by known rows: {about}", flush=True)
        table = Table()
        table.add_column("model", no_wrap=True)
        for k in shots:
            table.add_column(str(k), justify="right", no_wrap=True)
        for model in dict.fromkeys(row["model"] for row in mine):
            own = {row["shots"]: row for row in mine if row["model"] == model}
            table.add_row(model, *(f"{own[k]['mean']:.4g} ± {own[k]['std']:.2g}" for k in shots))
        console().print(table)


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Whether it pays to adapt: the most known rows against the best that adapts to nobody."""
    metric = "rmse" if any(row["metric"] == "rmse" for row in rows) else "log_loss"
    scores = {(row["model"], row["shots"]): row["mean"] for row in rows if row["metric"] == metric}
    most = max(row["shots"] for row in rows)
    after = scores["personal", most]
    before = min(scores["personal", 0], scores["pooled", 0])
    known = _many(most, "row")
    said = f"{metric.replace('_', ' ')} {after:.4g} after {known}, {before:.4g} without any"
    if after > PAYS * before:
        return f"personalisation does not pay on this table: {said}"
    simple = min(scores["per-task", most], scores["shrunken-mean", most])
    if simple < after:
        name = "per-task" if scores["per-task", most] == simple else "shrunken-mean"
        return f"personalisation pays: {said}; but {name} alone has {simple:.4g}"
    return f"personalisation pays: {said}"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
