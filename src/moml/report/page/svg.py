"""Charts as SVG: lines, bands and points over two axes. Colours come from the page's style."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from moml.report.page.html import Markup, folded, join, tag
from moml.report.ticks import Number, decades, nice, short

WIDE, HIGH = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 12, 48
STYLES = 8  # colours; each has its own dashes
DASHES = (None, "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 3", "14 3 3 3")
MARK = 3.6  # half the size of a marker
CORNERS: tuple[list[tuple[float, float]], ...] = (  # of markers; the first is a circle
    [],
    [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    [(0, -1.15), (1.15, 1.15), (-1.15, 1.15)],
    [(0, -1.38), (1.15, 0), (0, 1.38), (-1.15, 0)],
    [(0, 1.15), (1.15, -1.15), (-1.15, -1.15)],
)
Point = tuple[Number, Number]
Scale = Callable[[Number], float]  # the coordinate of a value


class Series(NamedTuple):
    """Points under one name; `band` has the lowest and the highest y at each of them."""

    name: str
    points: Sequence[Point]
    style: int = 0
    band: Sequence[Point] = ()
    line: bool = True
    marks: bool = True
    quiet: bool = False  # a reference line
    hollow: bool = False  # markers


class Axis(NamedTuple):
    """An axis; `show` formats the labels of its ticks."""

    title: str
    log: bool = False
    show: Callable[[Number], str] | None = None
    zero: bool = False  # begins at 0
    ticks: Sequence[Number] = ()  # by default round numbers


def scaled(
    axis: Axis, values: Sequence[Number], start: int, end: int, margin: float
) -> tuple[Scale, Sequence[Number]]:
    """The scale from `start` to `end` that holds these values with a margin, and its ticks."""
    given = [*values, *axis.ticks] or [0.0, 1.0]
    low, high = float(min(given)), float(max(given))
    if axis.log:
        grow = max((high / low) ** margin, 1.02)
        low, high = low / grow, high * grow
    else:
        low = min(low, 0.0) if axis.zero else low
        pad = margin * (high - low) or (0.5 * abs(high) if margin else 0) or 0.5
        low, high = 0.0 if axis.zero and low == 0 else low - pad, high + pad
    bend = math.log10 if axis.log else float
    first, last = bend(low), bend(high)
    at = lambda value: start + (end - start) * (bend(value) - first) / (last - first)
    return at, axis.ticks or (decades if axis.log else nice)(low, high)


def _places(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _mark(one: Series, x: float, y: float, title: str | None = None) -> Markup:
    """A marker; its form distinguishes the series where colours do not."""
    inside = [] if title is None else [tag("title", title)]
    name = f"{'h' if one.hollow else 'm'} s{one.style % STYLES}"
    corners = CORNERS[one.style % STYLES % len(CORNERS)]
    if not corners:
        return tag("circle", *inside, class_=name, cx=f"{x:.1f}", cy=f"{y:.1f}", r=MARK)
    places = [(x + a * MARK, y + b * MARK) for a, b in corners]
    return tag("polygon", *inside, class_=name, points=_places(places))


def _line(name: str, one: Series, **where: object) -> Markup:
    """A line in the style of its series."""
    style = one.style % STYLES
    kind, dash = ("l quiet", None) if one.quiet else (f"l s{style}", DASHES[style])
    return tag(name, class_=kind, stroke_dasharray=dash, **where)


def _drawn(one: Series, x: Scale, y: Scale, title: Callable[[Point], str]) -> list[Markup]:
    places = [(x(a), y(b)) for a, b in one.points]
    parts = []
    if one.band:
        ends = list(zip(places, one.band, strict=True))
        above = [(at, y(high)) for (at, _), (_, high) in ends]
        below = [(at, y(low)) for (at, _), (low, _) in reversed(ends)]
        name = f"band s{one.style % STYLES}"
        parts.append(tag("polygon", class_=name, points=_places([*above, *below])))
    if one.line and len(places) > 1:
        parts.append(_line("polyline", one, points=_places(places)))
    if one.marks or len(places) == 1:
        named = zip(places, one.points, strict=True)
        parts += [_mark(one, *place, f"{one.name}: {title(point)}") for place, point in named]
    return parts


def chart(
    series: Sequence[Series], x: Axis, y: Axis, label: str, wide: int = WIDE, high: int = HIGH
) -> Markup:
    """Draw series over two axes; `label` describes the chart to screen readers."""
    xs = [a for one in series for a, _ in one.points]
    ys = [b for one in series for _, b in one.points]
    ys += [value for one in series for ends in one.band for value in ends]
    right, base = wide - RIGHT, high - BOTTOM
    across, x_ticks = scaled(x, xs, LEFT, right, 0.06 if x.log else 0.02)
    up, y_ticks = scaled(y, ys, base, TOP, 0.06)
    show_x, show_y = (axis.show or short for axis in (x, y))
    parts = []
    for value in y_ticks:
        at = round(up(value), 1)
        parts.append(tag("line", class_="grid", x1=LEFT, x2=right, y1=at, y2=at))
        parts.append(tag("text", show_y(value), x=LEFT - 7, y=f"{at + 4.5:.1f}", text_anchor="end"))
    for value in x_ticks:
        at = round(across(value), 1)
        parts.append(tag("line", class_="tick", x1=at, x2=at, y1=base, y2=base + 4))
        parts.append(tag("text", show_x(value), x=at, y=base + 18, text_anchor="middle"))
    parts.append(tag("line", class_="axis", x1=LEFT, x2=right, y1=base, y2=base))
    turned = f"translate(11 {(TOP + base) / 2:g}) rotate(-90)"
    centre = (LEFT + right) / 2
    parts.append(tag("text", x.title, class_="t", x=centre, y=high - 8, text_anchor="middle"))
    parts.append(tag("text", y.title, class_="t", transform=turned, text_anchor="middle"))
    title = lambda point: f"{show_x(point[0])}, {show_y(point[1])}"
    drawn = [part for one in series for part in _drawn(one, across, up, title)]
    return tag("svg", *parts, *drawn, viewBox=f"0 0 {wide} {high}", role="img", aria_label=label)


def legend(series: Sequence[Series]) -> Markup:
    """Names with a piece of each line."""
    items = []
    for one in series:
        line = _line("line", one, x1=1, x2=33, y1=7, y2=7) if one.line else None
        swatch = join([line, _mark(one, 17.0, 7.0) if one.marks else None])
        picture = tag("svg", swatch, viewBox="0 0 34 14", aria_hidden="true")
        items.append(tag("li", picture, one.name))
    return tag("ul", *items, class_="legend")


def figure(
    charts: Sequence[Markup], caption: str, data: Sequence[Markup], names: Markup | None
) -> Markup:
    """Charts with their legend and caption, and their data as folded tables."""
    panels = tag("div", *charts, class_="panels" if len(charts) > 1 else "panel")
    under = folded("The data as a table", *data)
    return tag("figure", panels, names, tag("figcaption", caption), under)


def picture(
    series: Sequence[Series], x: Axis, y: Axis, label: str, caption: str, data: Markup
) -> Markup:
    """A figure with one chart, and a legend if it has several series."""
    names = legend(series) if len(series) > 1 else None
    return figure([join([chart(series, x, y, label), names])], caption, [data], None)


def wide_range(values: Sequence[Number]) -> bool:
    """Whether a logarithmic axis suits the values."""
    return bool(values) and min(values) > 0 and max(values) > 8 * min(values)
