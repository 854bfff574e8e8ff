"""Pictures that one run has and several share: learning curves, scores by known samples."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from moml.report.client_tables import size
from moml.report.page_html import Markup, Table, figure, join, thinned
from moml.report.page_runs import Measure, Row
from moml.report.page_svg import Axis, Series, chart, legend

BEYOND = 20  # times what most tasks have is off the picture
DRAWN, LISTED = 300, 40  # points of a line in a picture; rows of its table


class Curve(NamedTuple):
    """A run's lines of metrics, under its name."""

    name: str
    rows: Sequence[Row]
    style: int = 0


class Known(NamedTuple):
    """Scores of one model by number of known samples; `low` and `high` hold most tasks."""

    name: str
    shots: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: int = 0


def picture(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    label: str,
    caption: str,
    data: Sequence[Table],
) -> Markup:
    """A chart with its legend, where there is more than one line, and its data."""
    drawn = chart(series, x, y, label)
    names = legend(series) if len(series) > 1 else None
    return figure([join([drawn, names])], caption, data)


def _sent(row: Row) -> int | None:
    cost = row.get("cost")
    return None if cost is None else cost["down"] + cost["up"]


def curves(some: Sequence[Curve], measure: Measure) -> list[Markup]:
    """Score and loss against samples, and against bytes where rounds sent any."""
    scored = [(one, [row for row in one.rows if row["score"] is not None]) for one in some]
    scored = [(one, rows) for one, rows in scored if rows]
    samples = lambda row: row["samples"]
    made = []
    if any(len(rows) > 1 for _, rows in scored):
        made.append(_curve(scored, "score", measure, samples, "samples drawn"))
    trained = [(one, one.rows) for one in some if one.rows]
    if trained:
        made.append(_curve(trained, "loss", measure, samples, "samples drawn"))
    costly = [(one, rows) for one, rows in scored or trained if _sent(rows[0]) is not None]
    if costly:
        made.append(_curve(costly, "score" if scored else "loss", measure, _sent, "bytes sent"))
    return made


def _curve(
    some: Sequence[tuple[Curve, Sequence[Row]]],
    field: str,
    measure: Measure,
    across: Callable[[Row], Any],
    words: str,
) -> Markup:
    y_title = measure.axis if field == "score" else "training loss"
    series, listed = [], []
    for one, rows in some:
        points = [(float(across(row)), row[field]) for row in rows if _finite(row[field])]
        thin = thinned(points, DRAWN)
        series.append(Series(one.name, thin, one.style, marks=len(thin) <= LISTED))
        listed += [(one.name, row) for row in thinned(rows, LISTED)]
    log = field == "loss" or not measure.unit
    y = Axis(y_title, log=log and wide([b for one in series for _, b in one.points]))
    sent = words == "bytes sent"
    x = Axis(f"{words}, both ways" if sent else words, zero=True, show=size if sent else None)
    caption = {
        "score": f"Scores taken during training: {measure.words} {measure.of}.",
        "loss": "Mean loss of the tasks in a step after they adapt, a point for each line of metrics.",
    }[field]
    if sent:
        caption = f"The same {'scores' if field == 'score' else 'losses'} against the bytes of models that clients and server sent."
    columns = ["run", "iterations", words, y_title]
    several = len(some) > 1
    whole = max(len(rows) for _, rows in some)
    cut = f"; {LISTED} of {whole} lines, metrics.jsonl has all" if whole > LISTED else ""
    rows_ = [[name, row["iterations"], across(row), row[field]] for name, row in listed]
    data = Table(f"{_upper(y_title)} by {words}{cut}", columns[not several :], [r[not several :] for r in rows_])
    ends = "; ".join(f"{one.name} ends at {one.points[-1][1]:.4g}" for one in series if one.points)
    return picture(series, x, y, f"Line chart of {y_title} against {words}: {ends}", caption, [data])


def _finite(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def wide(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis shows more."""
    return bool(values) and min(values) > 0 and max(values) > 8 * min(values)


def _upper(words: str) -> str:
    return words[:1].upper() + words[1:]


def by_known(
    some: Sequence[Known], measure: Measure, what: str, caption: str, *, bands: bool = True
) -> Markup:
    """Scores against the number of known samples, shots or rows."""
    series, beyond = [], []
    top = 0.0 if measure.higher else BEYOND * _typical(some)
    for one in some:
        seen = [i for i, value in enumerate(one.mean) if not top or value <= top]
        at = [(float(one.shots[i]), one.mean[i]) for i in seen]
        band = [(one.low[i], one.high[i]) for i in seen] if bands and one.low else []
        series.append(Series(one.name, at, one.style, band))
        beyond += [(one, i) for i in range(len(one.mean)) if i not in seen]
    if beyond:
        by = lambda one: f" ({one.name})" if len(some) > 1 else ""
        far = "; ".join(f"{one.mean[i]:.3g} at {one.shots[i]}{by(one)}" for one, i in beyond)
        caption += f" Beyond the picture, since some tasks diverge: {far}."
    at = sorted({k for one in some for k in one.shots})
    ys = [b for one in series for _, b in one.points] + [low for one in series for low, _ in one.band]
    y = Axis(measure.axis, log=not measure.unit and wide(ys))
    x = Axis(f"known {what}", ticks=_apart(at), show=lambda value: f"{value:.0f}")
    table = _known_table(some, measure, what)
    ends = "; ".join(f"{one.name} {one.mean[0]:.4g} to {one.mean[-1]:.4g}" for one in some)
    label = f"Line chart of {measure.axis} against known {what}, {at[0]} to {at[-1]}: {ends}"
    return picture(series, x, y, label, caption, [table])


def _typical(some: Sequence[Known]) -> float:
    """The highest of what most tasks have, or else of the middle of the means."""
    return max(max(one.high) if one.high else float(np.median(one.mean)) for one in some)


def _apart(at: Sequence[int]) -> list[float]:
    """Those of the numbers that have room as ticks."""
    kept: list[float] = []
    for value in reversed(at):
        if not kept or kept[-1] - value >= 0.07 * (at[-1] - at[0]):
            kept.append(float(value))
    return kept[::-1]


def _known_table(some: Sequence[Known], measure: Measure, what: str) -> Table:
    spread = any(one.low for one in some)
    head = [f"known {what}", "model", measure.axis]
    rows: list[list[Any]] = []
    for k in sorted({k for one in some for k in one.shots}):
        for one in some:
            if k in one.shots:
                i = list(one.shots).index(k)
                ends = [one.low[i], one.high[i]] if one.low else [None, None]
                rows.append([k, one.name, one.mean[i], *(ends if spread else [])])
    return Table(
        f"{_upper(measure.words)} by known {what}",
        [*head, *(["a tenth of the tasks is below", "a tenth is above"] if spread else [])],
        rows,
    )


def spread(before: Any, after: Any, measure: Measure, what: str) -> Markup:
    """Which share of the tasks scores at most so much, before they adapt and after."""
    shares = np.arange(0, 101, 2) / 100
    series, cut = [], (0.02, 0.98) if not measure.higher else (0, 1)
    for style, (name, each) in enumerate({"after adapting": after, "before": before}.items()):
        values = np.quantile(np.asarray(each), np.clip(shares, *cut))
        points = [(float(v), 100 * float(s)) for v, s in zip(values, shares, strict=True)]
        inner = [point for point in points if cut[0] <= point[1] / 100 <= cut[1]]
        series.append(Series(name, inner, style, marks=False))
    xs = [a for one in series for a, _ in one.points]
    x = Axis(measure.axis, log=not measure.unit and wide(xs))
    y = Axis("share of the tasks, %", ticks=(0, 25, 50, 75, 100))
    tens = [q / 10 for q in range(1, 10)]
    quantiles = [np.quantile(np.asarray(each), tens) for each in (before, after)]
    rows = [[f"{100 * q:.0f} %", float(b), float(a)] for q, b, a in zip(tens, *quantiles, strict=True)]
    data = Table("What a share of the tasks is at or below", ["share", "before", "after adapting"], rows)
    better, worse = ("right", "left") if measure.higher else ("left", "right")
    caption = (
        f"The tasks one by one, {what}: how many of them have at most this {measure.words}. "
        f"A line further to the {better} is better"
        f"{'' if measure.higher else '; the outermost fiftieths are left out'}."
    )
    label = f"Share of tasks by {measure.words}; median {quantiles[0][4]:.4g} before adapting, {quantiles[1][4]:.4g} after"
    return picture(series, x, y, label, caption, [data])


def tenths(each: Any) -> tuple[float, float]:
    """What a tenth of the tasks is below, and what a tenth is above."""
    low, high = np.quantile(np.asarray(each), [0.1, 0.9])
    return float(low), float(high)
