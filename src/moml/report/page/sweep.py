"""A sweep on the page: its settings by score, and their curves."""

from typing import NamedTuple

import numpy as np

from moml.report.page.charts import Curve, curves
from moml.report.page.html import Markup, pair, section, table, tag, tiles
from moml.report.page.runs import Swept
from moml.report.page.svg import Axis, Series, picture, wide_range
from moml.report.page.train import lead
from moml.types import Record

LINES = 6  # settings whose curves are drawn


class Point(NamedTuple):
    """A point of the grid: last scores of its seeds, lost seeds, and its mean learning curve."""

    values: dict[str, float]
    scores: list[float]
    mean: float | None  # over the seeds that did not diverge
    lost: int
    rows: list[Record]

    @property
    def name(self) -> str:
        """Its values in words."""
        return _words(self.values) or "all seeds"


def _words(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


def ranked(run: Swept) -> list[Point]:
    """The points of the grid: those that lost the fewest seeds first, then by score."""
    mean = lambda some: float(np.mean(some)) if some and None not in some else None
    points, seeds = [], run.record["seeds"]
    for start in range(0, len(run.settings), seeds):  # seeds run fastest
        members = run.lines[start : start + seeds]
        values = {name: x for name, x in run.settings[start].items() if name != "seed"}
        alive = [mine for mine in members if not mine or mine[-1]["loss"] is not None]
        scored = [[row["score"] for row in mine if row["score"] is not None] for mine in alive]
        scores = [mine[-1] for mine in scored if mine]
        rows = [
            lines[0] | {name: mean([line[name] for line in lines]) for name in ("loss", "score")}
            for lines in zip(*members, strict=False)
        ]
        points.append(Point(values, scores, mean(scores), seeds - len(alive), rows))
    sign = -1 if run.measure.higher else 1
    worth = lambda point: np.inf if point.mean is None else sign * point.mean
    return sorted(points, key=lambda point: (point.lost, worth(point)))


def body(run: Swept) -> list[Markup]:
    """All sections but the settings."""
    points, measure, seeds = ranked(run), run.measure, run.record["seeds"]
    best = points[0]
    end = "" if best.mean is None else f" The best of them is {best.name}."
    about = f": {len(points):,} settings with {seeds} seeds each."
    pairs = [
        (f"best {measure.words}", measure.say(best.mean)),
        ("settings", f"{len(points):,}"),
        ("trainings", f"{len(run.settings):,}"),
        ("lost", f"{sum(point.lost for point in points):,}"),
    ]
    rows = [
        [place, *(f"{value:g}" for value in point.values.values()), measure.say(point.mean),
         float(np.std(point.scores)) if point.scores else None, point.lost]
        for place, point in enumerate(points, start=1)
    ]  # fmt: skip
    columns = ["rank", *run.record["grid"], measure.axis, "std over seeds", f"lost of {seeds}"]
    caption = "Settings by last score, averaged over seeds; those with lost seeds are last"
    scores = table(caption, columns, rows)
    parts = [lead(run.config, about, end), tiles(pairs)]
    parts.append(section("Settings by score", _map(run, points), scores))
    shown = [point for point in points if point.scores][:LINES]
    drawn = curves([Curve(p.name, p.rows, i) for i, p in enumerate(shown)], measure)
    if drawn:
        which = f", of the best {LINES} settings" if len(points) > LINES else ""
        words = tag("p", f"Means over seeds{which}.", class_="soft")
        parts.append(section("Learning curves", words, pair(*drawn)))
    return parts


def _map(run: Swept, points: list[Point]) -> Markup | None:
    """Scores along the axis with most values, a line for each combination of the others."""
    grid = run.record["grid"]
    along = max(grid, key=lambda name: len(grid[name]), default=None)
    alive = [point for point in points if point.mean is not None]
    if along is None or len({point.values[along] for point in alive}) < 2:
        return None
    lines: dict[str, list[Point]] = {}
    for point in sorted(alive, key=lambda point: point.values[along]):
        rest = {name: value for name, value in point.values.items() if name != along}
        lines.setdefault(_words(rest) or "all settings", []).append(point)
    series = []
    for i, (name, mine) in enumerate(sorted(lines.items())):
        at = [(point.values[along], point.mean or 0.0) for point in mine]
        series.append(Series(name, at, i, [(min(p.scores), max(p.scores)) for p in mine]))
    xs = sorted({x for one in series for x, _ in one.points})
    means = [y for one in series for _, y in one.points]
    x = Axis(along, log=xs[0] > 0 and xs[-1] > 4 * xs[0], ticks=xs if len(xs) <= 8 else ())
    y = Axis(run.measure.axis, log=not run.measure.unit and wide_range(means))
    rows = [[one.name, f"{a:g}", b, *ends] for one in series
            for (a, b), ends in zip(one.points, one.band, strict=True)]  # fmt: skip
    columns = ["line", along, "mean", "lowest seed", "highest seed"]
    caption = "Mean over seeds; the bands reach from the lowest seed to the highest."
    label = (
        f"Line chart of {run.measure.axis} against {along}; the best setting is {points[0].name}"
    )
    return picture(series, x, y, label, caption, table("Scores by setting", columns, rows))
