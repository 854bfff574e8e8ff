"""A sweep on the page: its settings by what they score, and their curves."""

from typing import Any, NamedTuple

import numpy as np

from moml.methods import summary
from moml.report.page.curves import Curve, curves, picture, wide
from moml.report.page.html import Markup, Table, join, section, table, tag, tiles
from moml.report.page.runs import Row, Swept
from moml.report.page.svg import Axis, Series
from moml.report.page.train import problem_in_words

LINES = 6  # settings whose curves are drawn
Values = tuple[tuple[str, float], ...]


class Point(NamedTuple):
    """A point of the grid: its seeds' last scores, how many were lost, the mean of their lines."""

    values: Values
    scores: list[float]
    seeds: int
    lost: int
    rows: list[Row]

    @property
    def name(self) -> str:
        """In words."""
        return ", ".join(f"{name} {value:g}" for name, value in self.values) or "all seeds"

    @property
    def mean(self) -> float | None:
        """Over the seeds that were not lost."""
        return float(np.mean(self.scores)) if self.scores else None


def ranked(run: Swept) -> list[Point]:
    """The points of the grid: those that lost the fewest seeds first, then by score."""
    members: dict[Values, list[list[Row]]] = {}
    for setting, lines in zip(run.settings, run.lines, strict=True):
        point = tuple((name, value) for name, value in setting.items() if name != "seed")
        members.setdefault(point, []).append(lines)
    points = [_point(values, mine) for values, mine in members.items()]
    sign = -1 if run.measure.higher else 1
    worth = lambda point: np.inf if point.mean is None else sign * point.mean
    return sorted(points, key=lambda point: (point.lost, worth(point)))


def _point(values: Values, members: list[list[Row]]) -> Point:
    last = [next((r["score"] for r in reversed(m) if _scored(r)), None) for m in members]
    lost = [bool(mine) and mine[-1]["loss"] is None for mine in members]
    scores = [s for s, gone in zip(last, lost, strict=True) if s is not None and not gone]
    mean = lambda some: float(np.mean(some)) if some and None not in some else None
    rows = [
        dict(lines[0]) | {name: mean([line[name] for line in lines]) for name in ("loss", "score")}
        for lines in zip(*members, strict=False)
    ]
    return Point(values, scores, len(members), sum(lost), rows)


def _scored(row: Row) -> bool:
    return row["score"] is not None


def body(run: Swept) -> list[Any]:
    """All sections but the settings."""
    points, measure = ranked(run), run.measure
    best = points[0]
    method = join([tag("code", run.config.method), f", {summary(run.config.method)}"])
    seeds = f"{len(points):,} settings with {best.seeds} seeds each"
    told = f"; on {problem_in_words(run.config)}: {seeds}."
    lost = sum(point.lost for point in points)
    end = "" if best.mean is None else f" The best of them is {best.name}."
    pairs = [
        (f"best {measure.words}", measure.say(best.mean)),
        ("settings", f"{len(points):,}"),
        ("trainings", f"{len(run.settings):,}"),
        ("lost", f"{lost:,}"),
    ]
    parts: list[Any] = [tag("p", method, told, end, class_="lead"), tiles(pairs)]
    names = list(run.record["grid"])
    rows = [
        [place, *(f"{value:g}" for _, value in point.values), measure.say(point.mean),
         float(np.std(point.scores)) if point.scores else None, point.lost]
        for place, point in enumerate(points, start=1)
    ]  # fmt: skip
    columns = ["rank", *names, measure.axis, "spread of seeds", f"lost of {best.seeds}"]
    caption = "Settings by their last score, a mean over seeds; those that lost some come last"
    parts.append(
        section("Settings by score", _map(run, points), table(Table(caption, columns, rows)))
    )
    shown = [point for point in points if point.scores][:LINES]
    drawn = curves([Curve(p.name, p.rows, i) for i, p in enumerate(shown)], measure)
    if drawn:
        words = (
            f"Means over seeds{f', of the best {LINES} settings' if len(points) > LINES else ''}."
        )
        parts.append(
            section(
                "Learning curves", tag("p", words, class_="soft"), tag("div", *drawn, class_="pair")
            )
        )
    return parts


def _map(run: Swept, points: list[Point]) -> Markup:
    """Scores along the axis with most values, a line for each of the others' values."""
    grid = run.record["grid"]
    along = max(grid, key=lambda name: len(grid[name]), default=None)
    alive = [point for point in points if point.mean is not None]
    if along is None or len({dict(point.values)[along] for point in alive}) < 2:
        return join([])
    lines: dict[str, list[Point]] = {}
    for point in alive:
        rest = ", ".join(f"{name} {value:g}" for name, value in point.values if name != along)
        lines.setdefault(rest or "all settings", []).append(point)
    series = []
    for i, (name, mine) in enumerate(sorted(lines.items())):
        mine.sort(key=lambda point: dict(point.values)[along])
        at = [(dict(point.values)[along], point.mean or 0.0) for point in mine]
        ends = [(min(point.scores), max(point.scores)) for point in mine]
        series.append(Series(name, at, i, ends))
    xs = sorted({x for one in series for x, _ in one.points})
    means = [y for one in series for _, y in one.points]
    x = Axis(along, log=xs[0] > 0 and xs[-1] > 4 * xs[0], ticks=xs if len(xs) <= 8 else ())
    y = Axis(run.measure.axis, log=not run.measure.unit and wide(means))
    rows = [[one.name, f"{a:g}", b, *ends] for one in series
            for (a, b), ends in zip(one.points, one.band, strict=True)]  # fmt: skip
    data = Table("Scores by setting", ["line", along, "mean", "lowest seed", "highest seed"], rows)
    caption = "Mean over seeds; the bands reach from the lowest seed to the highest."
    label = (
        f"Line chart of {run.measure.axis} against {along}; the best setting is {points[0].name}"
    )
    return picture(series, x, y, label, caption, data)
