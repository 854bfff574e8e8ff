"""Learning curves, of one run or of several."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from moml.report.page.html import Markup, Table, figure, join, thinned, upper
from moml.report.page.runs import Measure, Row
from moml.report.page.svg import Axis, Series, chart, legend
from moml.report.terminal.clients import size

DRAWN, LISTED = 300, 40  # points of a line in a picture; rows of its table
LOSS = (
    "Mean loss of a step's tasks after they adapt (of fedavg and ditto, which do not adapt while "
    "they train, before each local step), a point for each line of metrics."
)


class Curve(NamedTuple):
    """A run's lines of metrics, under its name."""

    name: str
    rows: Sequence[Row]
    style: int = 0


class Across(NamedTuple):
    """What a curve is drawn against."""

    words: str
    of: Callable[[Row], Any]
    axis: Axis


def _sent(row: Row) -> int | None:
    cost = row.get("cost")
    return None if cost is None else cost["down"] + cost["up"]


SAMPLES = Across("samples drawn", lambda row: row["samples"], Axis("samples drawn", zero=True))
SENT = Across("bytes sent", _sent, Axis("bytes sent, both ways", show=size, zero=True))


def picture(
    series: Sequence[Series], x: Axis, y: Axis, label: str, caption: str, data: Table
) -> Markup:
    """A chart with its legend, where there is more than one line, and its data."""
    names = legend(series) if len(series) > 1 else None
    return figure([join([chart(series, x, y, label), names])], caption, [data])


def wide(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis shows more."""
    return bool(values) and min(values) > 0 and max(values) > 8 * min(values)


def curves(some: Sequence[Curve], measure: Measure) -> list[Markup]:
    """Score and loss against samples, and against bytes where rounds sent any."""
    scored = [one._replace(rows=[r for r in one.rows if r["score"] is not None]) for one in some]
    scored = [one for one in scored if one.rows]
    trained = [one for one in some if one.rows]
    made = []
    if any(len(one.rows) > 1 for one in scored):
        made.append(_curve(scored, "score", measure, SAMPLES))
    if trained:
        made.append(_curve(trained, "loss", measure, SAMPLES))
    several = any(len(one.rows) > 1 for one in scored)
    costly = [one for one in (scored if several else trained) if _sent(one.rows[0]) is not None]
    if costly:
        made.append(_curve(costly, "score" if several else "loss", measure, SENT))
    return made


def _curve(some: Sequence[Curve], field: str, measure: Measure, across: Across) -> Markup:
    title = measure.axis if field == "score" else "training loss"
    series = []
    for one in some:
        points = [(float(across.of(r)), r[field]) for r in one.rows if _finite(r[field])]
        thin = thinned(points, DRAWN)
        series.append(Series(one.name, thin, one.style, marks=len(thin) <= LISTED))
    log = field == "loss" or not measure.unit
    y = Axis(title, log=log and wide([b for one in series for _, b in one.points]))
    caption = LOSS
    if field == "score":
        caption = f"Scores taken during training: {measure.words} {measure.of}."
    if across is SENT:
        what = "scores" if field == "score" else "losses"
        caption = f"The same {what} against the bytes of models that server and clients sent."
    ends = "; ".join(f"{one.name} ends at {one.points[-1][1]:.4g}" for one in series if one.points)
    label = f"Line chart of {title} against {across.words}: {ends}"
    return picture(series, across.axis, y, label, caption, _listed(some, field, title, across))


def _listed(some: Sequence[Curve], field: str, title: str, across: Across) -> Table:
    most = max(len(one.rows) for one in some)
    cut = f"; {LISTED} of {most:,} lines, metrics.jsonl has all" if most > LISTED else ""
    rows = [
        [one.name, row["iterations"], across.of(row), row[field]]
        for one in some
        for row in thinned(one.rows, LISTED)
    ]
    first = 0 if len(some) > 1 else 1  # the name of a run that is alone is left out
    columns = ["run", "iterations", across.words, title]
    caption = f"{upper(title)} by {across.words}{cut}"
    return Table(caption, columns[first:], [row[first:] for row in rows])


def _finite(value: Any) -> bool:
    return value is not None and math.isfinite(value)
