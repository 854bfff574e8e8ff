"""Charts of scores: learning curves, scores by known samples, scores over the tasks."""

import math
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from moml.report.page.html import Markup, table, thinned, upper
from moml.report.page.runs import Measure
from moml.report.page.svg import Axis, Point, Series, picture, wide_range
from moml.report.terminal import size
from moml.types import Record

DRAWN, LISTED = 300, 40  # points of a learning curve; rows of its table
LOSS = (
    "Mean loss of a step's tasks after they adapt, a point for each line of metrics. fedavg, ditto "
    "and the like do not adapt during training; theirs is the loss before each local step."
)
BEYOND = 20  # means above this many times the usual score are outside the chart
CLOSE = 0.07  # least distance of two ticks, as a share of the axis
STEPS = 201  # points of the curve over the tasks
OUTER = 0.02  # share of the tasks left out at either end, whose errors may be of any size
Values = Float[np.ndarray, " tasks"]
SHARES = (0, 25, 50, 75, 100)
RANKED = 400  # points of a series over clients or tasks


class Curve(NamedTuple):
    """Lines of metrics of a run, under its name."""

    name: str
    rows: Sequence[Record]
    style: int = 0


def curves(some: Sequence[Curve], measure: Measure) -> list[Markup]:
    """Score and loss against samples, and against bytes where there were rounds."""
    scored = [one._replace(rows=[r for r in one.rows if r["score"] is not None]) for one in some]
    scored = [one for one in scored if one.rows]
    trained = [one for one in some if one.rows]
    several = any(len(one.rows) > 1 for one in scored)
    best = (scored, "score") if several else (trained, "loss")
    made = [_curve(*best, measure, "samples drawn")] if several else []
    if trained:
        made.append(_curve(trained, "loss", measure, "samples drawn"))
    costly = [one for one in best[0] if "cost" in one.rows[0]]
    if costly:
        made.append(_curve(costly, best[1], measure, "bytes sent"))
    return made


def _curve(some: Sequence[Curve], field: str, measure: Measure, across: str) -> Markup:
    sent = across == "bytes sent"
    at = lambda row: row["cost"]["down"] + row["cost"]["up"] if sent else row["samples"]
    x = Axis("bytes sent, both ways" if sent else across, show=size if sent else None, zero=True)
    title = measure.axis if field == "score" else "training loss"
    series = []
    for one in some:
        points = [(at(row), row[field]) for row in one.rows]
        points = thinned([p for p in points if p[1] is not None and math.isfinite(p[1])], DRAWN)
        series.append(Series(one.name, points, one.style, marks=len(points) <= LISTED))
    log = field == "loss" or not measure.unit
    y = Axis(title, log=log and wide_range([b for one in series for _, b in one.points]))
    caption = LOSS
    if sent:
        what = "scores" if field == "score" else "losses"
        caption = f"The same {what} against the bytes of models that server and clients sent."
    elif field == "score":
        caption = f"Scores taken during training: {measure.words} {measure.of}."
    ends = "; ".join(f"{one.name} ends at {one.points[-1][1]:.4g}" for one in series if one.points)
    label = f"Line chart of {title} against {across}: {ends}"
    most = max(len(one.rows) for one in some)
    cut = f"; {LISTED} of {most:,} lines, metrics.jsonl has all" if most > LISTED else ""
    rows = [
        [one.name, row["iterations"], at(row), row[field]]
        for one in some
        for row in thinned(one.rows, LISTED)
    ]
    first = 0 if len(some) > 1 else 1  # a single run needs no column for its name
    columns = ["run", "iterations", across, title][first:]
    data = table(f"{upper(title)} by {across}{cut}", columns, [row[first:] for row in rows])
    return picture(series, x, y, label, caption, data)


def by_known(
    lines: Sequence[Series], measure: Measure, what: str, caption: str, *, bands: bool = True
) -> Markup:
    """Scores against the number of known samples or rows; the caption lists those far outside."""
    means = lambda one: [mean for _, mean in one.points]
    highs = lambda one: [high for _, high in one.band]
    usual = filter(math.isfinite, [high for one in lines for high in highs(one)])
    top = BEYOND * max(usual, default=0.0)
    series, beyond = [], []
    for one in lines:
        shown = one if bands else one._replace(band=[])
        inside = [
            (measure.higher or mean <= top) and math.isfinite(high)
            for mean, high in zip(means(one), highs(shown) or means(one), strict=True)
        ]
        points, band = compress(one.points, inside), compress(shown.band, inside)
        series.append(shown._replace(points=list(points), band=list(band)))
        beyond += [(one, *point) for point in one.points if point not in series[-1].points]
    if beyond:
        by = lambda one: f" ({one.name})" if len(lines) > 1 else ""
        far = "; ".join(f"{mean:.3g} at {known}{by(one)}" for one, known, mean in beyond)
        caption += f" Outside the chart, since some tasks diverge: {far}."
    at = sorted({known for one in lines for known, _ in one.points})
    ys = [y for one in series for y in [*means(one), *(low for low, _ in one.band)]]
    y = Axis(measure.axis, log=not measure.unit and wide_range(ys))
    x = Axis(f"known {what}", ticks=_spaced(at), show=lambda value: f"{value:.0f}")
    ranges = "; ".join(f"{o.name} {means(o)[0]:.4g} to {means(o)[-1]:.4g}" for o in lines)
    label = f"Line chart of {measure.axis} against known {what}, {at[0]} to {at[-1]}: {ranges}"
    several = len(lines) > 1
    rows = [
        [known, *([one.name] if several else []), mean, *ends]
        for one in lines
        for (known, mean), ends in zip(one.points, one.band, strict=True)
    ]
    rows.sort(key=lambda row: row[0])
    columns = [f"known {what}", *(["of"] if several else []), measure.axis]
    columns += ["10 % quantile", "90 % quantile"]
    data = table(f"{upper(measure.words)} by known {what}", columns, rows)
    return picture(series, x, y, label, caption, data)


def _spaced(at: Sequence[float | int]) -> list[float | int]:
    """Those of the numbers that are far enough apart for ticks."""
    kept: list[float | int] = []
    for value in reversed(at):
        if not kept or kept[-1] - value >= CLOSE * (at[-1] - at[0]):
            kept.append(value)
    return kept[::-1]


def by_rank(values: Sequence[float | None]) -> list[Point]:
    """Points of values in their order; x is the rank in percent. None is left out."""
    at = 100 * (np.arange(len(values)) + 0.5) / len(values)
    pairs = zip(at.tolist(), values, strict=True)
    return thinned([(x, y) for x, y in pairs if y is not None], RANKED)


def over_tasks(before: Values, after: Values, measure: Measure, what: str) -> Markup:
    """The share of the tasks with at most a given score, before and after they adapt."""
    outer = 0.0 if measure.higher else OUTER
    shares, tens = np.linspace(outer, 1 - outer, STEPS), np.arange(1, 10) / 10
    at = lambda each, q: np.quantile(each, q, method="inverted_cdf").tolist()
    named = {"after adapting": after, "before": before}
    series = []
    for style, (name, each) in enumerate(named.items()):
        pairs = zip(at(each, shares), (100 * shares).tolist(), strict=True)
        points = [(value, share) for value, share in pairs if np.isfinite(value)]
        series.append(Series(name, points, style, marks=False))
    values = [value for one in series for value, _ in one.points]
    x = Axis(measure.axis, log=not measure.unit and wide_range(values))
    y = Axis("share of the tasks, %", ticks=SHARES)
    cells = zip(tens, *(at(each, tens) for each in named.values()), strict=True)
    rows = [[f"{100 * share:.0f} %", *values] for share, *values in cells]
    data = table("Quantiles of the score over the tasks", ["share", *named], rows)
    caption = (
        f"Share of the tasks with at most this {measure.words}, with {what}. "
        f"A line further to the {'right' if measure.higher else 'left'} is better"
        f"{'' if measure.higher else '; the outermost 2 % at either end are left out'}."
    )
    middle = [f"{np.median(each):.4g}" for each in (before, after)]
    label = f"Share of tasks by {measure.words}: the median is {middle[0]} before adapting, "
    return picture(series, x, y, label + f"{middle[1]} after", caption, data)
