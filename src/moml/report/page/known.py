"""Scores against the number of known samples or rows, and how they lie over the tasks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from moml.report.page.curves import picture, wide
from moml.report.page.html import Markup, Table, upper
from moml.report.page.runs import Measure
from moml.report.page.svg import Axis, Series

BEYOND = 20  # times what most tasks have is off the picture
CLOSE = 0.07  # of an axis is too near for two ticks
STEPS = 201  # points of a line of shares
OUTER = 0.02  # of the tasks on either side, whose errors may be of any size


class Known(NamedTuple):
    """Scores of one model by number of known samples; `low` and `high` hold most tasks."""

    name: str
    shots: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: int = 0


def tenths(each: Any) -> tuple[float, float]:
    """What a tenth of the tasks is below, and what a tenth is above."""
    low, high = np.quantile(np.asarray(each), [0.1, 0.9], method="inverted_cdf")
    return float(low), float(high)


def by_known(
    some: Sequence[Known], measure: Measure, what: str, caption: str, *, bands: bool = True
) -> Markup:
    """Scores against the number of known samples or rows; means off the picture are told."""
    series, beyond = [], []
    top = np.inf if measure.higher else BEYOND * _typical(some)
    for one in some:
        upper_ends = one.high if bands and one.high else one.mean
        seen = [i for i, mean in enumerate(one.mean) if mean <= top and np.isfinite(upper_ends[i])]
        points = [(float(one.shots[i]), one.mean[i]) for i in seen]
        band = [(one.low[i], one.high[i]) for i in seen] if bands and one.low else []
        series.append(Series(one.name, points, one.style, band))
        beyond += [(one, i) for i in range(len(one.mean)) if i not in seen]
    if beyond:
        by = lambda one: f" ({one.name})" if len(some) > 1 else ""
        far = "; ".join(f"{one.mean[i]:.3g} at {one.shots[i]}{by(one)}" for one, i in beyond)
        caption += f" Beyond the picture, since some tasks diverge: {far}."
    at = sorted({k for one in some for k in one.shots})
    ys = [y for one in series for y in [*(b for _, b in one.points), *(low for low, _ in one.band)]]
    y = Axis(measure.axis, log=not measure.unit and wide(ys))
    x = Axis(f"known {what}", ticks=_apart(at), show=lambda value: f"{value:.0f}")
    ends = "; ".join(f"{one.name} {one.mean[0]:.4g} to {one.mean[-1]:.4g}" for one in some)
    label = f"Line chart of {measure.axis} against known {what}, {at[0]} to {at[-1]}: {ends}"
    return picture(series, x, y, label, caption, _table(some, measure, what))


def _typical(some: Sequence[Known]) -> float:
    """The highest of what most tasks have, or where that is not known of the middle mean."""
    found = [high for one in some for high in one.high or [float(np.median(one.mean))]]
    return max((high for high in found if np.isfinite(high)), default=0.0)


def _apart(at: Sequence[int]) -> list[float]:
    """Those of the numbers that have room as ticks."""
    kept: list[float] = []
    for value in reversed(at):
        if not kept or kept[-1] - value >= CLOSE * (at[-1] - at[0]):
            kept.append(float(value))
    return kept[::-1]


def _table(some: Sequence[Known], measure: Measure, what: str) -> Table:
    spread, several = any(one.low for one in some), len(some) > 1
    rows: list[list[Any]] = []
    for k in sorted({k for one in some for k in one.shots}):
        for one in some:
            if k in one.shots:
                i = list(one.shots).index(k)
                ends = [one.low[i], one.high[i]] if one.low else [None, None]
                name = [one.name] if several else []
                rows.append([k, *name, one.mean[i], *(ends if spread else [])])
    columns = [f"known {what}", *(["of"] if several else []), measure.axis]
    columns += ["a tenth is below", "a tenth is above"] if spread else []
    return Table(f"{upper(measure.words)} by known {what}", columns, rows)


def over_tasks(before: Any, after: Any, measure: Measure, what: str) -> Markup:
    """Which share of the tasks scores at most so much, before they adapt and after."""
    outer = 0.0 if measure.higher else OUTER
    shares = np.linspace(outer, 1 - outer, STEPS)
    named = {"after adapting": np.asarray(after), "before": np.asarray(before)}
    series = []
    for style, (name, each) in enumerate(named.items()):
        values = np.quantile(each, shares, method="inverted_cdf")
        pairs = zip(values.tolist(), (100 * shares).tolist(), strict=True)
        points = [(value, share) for value, share in pairs if np.isfinite(value)]
        series.append(Series(name, points, style, marks=False))
    x = Axis(measure.axis, log=not measure.unit and wide([a for s in series for a, _ in s.points]))
    y = Axis("share of the tasks, %", ticks=(0, 25, 50, 75, 100))
    tens = np.arange(1, 10) / 10
    at = lambda each: np.quantile(each, tens, method="inverted_cdf")
    cells = zip(tens, *map(at, named.values()), strict=True)
    rows = [[f"{100 * q:.0f} %", float(a), float(b)] for q, a, b in cells]
    data = Table("What a share of the tasks is at or below", ["share", *named], rows)
    caption = (
        f"The tasks one by one, with {what}: how many of them have at most this {measure.words}. "
        f"A line further to the {'right' if measure.higher else 'left'} is better"
        f"{'' if measure.higher else '; the outermost fiftieths are left out'}."
    )
    middle = {name: f"{np.median(each):.4g}" for name, each in named.items()}
    label = f"Share of tasks by {measure.words}: the median is {middle['before']} before adapting, "
    return picture(series, x, y, label + f"{middle['after adapting']} after", caption, data)
