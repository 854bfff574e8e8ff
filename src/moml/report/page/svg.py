"""Pictures as SVG: lines, bands and points over two axes. Colours come from the page's style."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from moml.report.page.html import Markup, tag

WIDE, HIGH = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 12, 48
STYLES = 8  # colours; each has dashes and a marker of its own
DASHES = (None, "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 3", "14 3 3 3")
Point = tuple[float, float]


class Series(NamedTuple):
    """Points of one name; `band` has the lowest and the highest y at each of them."""

    name: str
    points: Sequence[Point]
    style: int = 0
    band: Sequence[tuple[float, float]] = ()
    line: bool = True
    marks: bool = True
    quiet: bool = False  # what the others are seen against
    hollow: bool = False  # markers


class Axis(NamedTuple):
    """An axis; `show` makes the words of a tick."""

    title: str
    log: bool = False
    show: Callable[[float], str] | None = None
    zero: bool = False  # begins at 0
    ticks: Sequence[float | int] = ()  # else what is round


def short(value: float | int) -> str:
    """A number of few letters.

    >>> [short(v) for v in (0, 0.05, 12, 1500, 2.5e6, 3e9, 1e-7)]
    ['0', '0.05', '12', '1.5k', '2.5M', '3G', '1e-7']
    """
    if value and not 1e-3 <= abs(value) < 1e12:
        head, tail = f"{value:.2e}".split("e")
        return f"{float(head):g}e{int(tail)}"
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:.4g}{unit}"
    return f"{value:.3g}"


def nice(low: float | int, high: float | int, most: int = 6) -> list[float]:
    """Round numbers from low to high.

    >>> nice(0, 97), nice(0.12, 0.31)
    ([0.0, 20.0, 40.0, 60.0, 80.0], [0.15, 0.2, 0.25, 0.3])
    """
    raw = (high - low) / most or abs(high) or 1.0
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def decades(low: float | int, high: float | int, most: int = 7) -> list[float]:
    """Round numbers of a logarithmic axis.

    >>> decades(0.3, 40)
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [m * 10.0**p for p in powers for m in steps]
        found = [value for value in found if low * 0.999 <= value <= high * 1.001]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


class Scale(NamedTuple):
    """From values to places."""

    axis: Axis
    low: float
    high: float
    start: int
    end: int

    def at(self, value: float | int) -> float:
        """Where a value lies."""
        bend = math.log10 if self.axis.log else float
        low, high = bend(self.low), bend(self.high)
        return self.start + (self.end - self.start) * (bend(value) - low) / (high - low)

    @property
    def ticks(self) -> Sequence[float | int]:
        """The values that are named."""
        round_ = decades if self.axis.log else nice
        return self.axis.ticks or round_(self.low, self.high)


def scaled(axis: Axis, values: Sequence[float | int], start: int, end: int, room: float) -> Scale:
    """The scale that holds these values, with some room around them."""
    given = [*values, *axis.ticks] or [0.0, 1.0]
    low, high = min(given), max(given)
    if axis.log:
        grow = max((high / low) ** room, 1.02)
        return Scale(axis, low / grow, high * grow, start, end)
    low = min(low, 0.0) if axis.zero else low
    pad = room * (high - low) or (0.5 * abs(high) if room else 0) or 0.5
    return Scale(axis, 0.0 if axis.zero and low == 0 else low - pad, high + pad, start, end)


def mark(
    style: int,
    x: float,
    y: float,
    title: str | None = None,
    *,
    hollow: bool = False,
    size: float = 3.6,
) -> Markup:
    """A marker: its form tells the series where colours do not."""
    told = [] if title is None else [tag("title", title)]
    by, name = size * 1.15, f"{'h' if hollow else 'm'} s{style % STYLES}"
    corners = {
        2: [(x, y - by), (x + by, y + by), (x - by, y + by)],
        3: [(x, y - by * 1.2), (x + by, y), (x, y + by * 1.2), (x - by, y)],
        4: [(x, y + by), (x + by, y - by), (x - by, y - by)],
    }
    match style % 5:
        case 0:
            return tag("circle", *told, class_=name, cx=f"{x:.1f}", cy=f"{y:.1f}", r=size)
        case 1:
            return tag(
                "rect", *told, class_=name, x=f"{x - size:.1f}", y=f"{y - size:.1f}",
                width=2 * size, height=2 * size,
            )  # fmt: skip
        case form:
            return tag("polygon", *told, class_=name, points=_places(corners[form]))


def _places(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _drawn(one: Series, x: Scale, y: Scale) -> list[Markup]:
    style = one.style % STYLES
    places = [(x.at(a), y.at(b)) for a, b in one.points]
    parts = []
    if one.band:
        ends = list(zip(places, one.band, strict=True))
        upper = [(at, y.at(high)) for (at, _), (_, high) in ends]
        lower = [(at, y.at(low)) for (at, _), (low, _) in reversed(ends)]
        corners = _places([*upper, *lower])
        parts.append(tag("polygon", class_=f"band s{style}", points=corners))
    if one.line and len(places) > 1:
        name = "l quiet" if one.quiet else f"l s{style}"
        dash = None if one.quiet else DASHES[style]
        parts.append(tag("polyline", class_=name, stroke_dasharray=dash, points=_places(places)))
    if one.marks or len(places) == 1:
        show_x, show_y = (axis.show or short for axis in (x.axis, y.axis))
        parts += [
            mark(style, *place, f"{one.name}: {show_x(a)}, {show_y(b)}", hollow=one.hollow)
            for place, (a, b) in zip(places, one.points, strict=True)
        ]
    return parts


def chart(
    series: Sequence[Series], x: Axis, y: Axis, label: str, wide: int = WIDE, high: int = HIGH
) -> Markup:
    """Series over two axes; `label` says in words what is seen."""
    xs = [a for one in series for a, _ in one.points]
    ys = [b for one in series for _, b in one.points]
    ys += [value for one in series for pair in one.band for value in pair]
    right, base = wide - RIGHT, high - BOTTOM
    across = scaled(x, xs, LEFT, right, 0.06 if x.log else 0.02)
    up = scaled(y, ys, base, TOP, 0.06)
    show_x, show_y = (axis.show or short for axis in (x, y))
    parts = []
    for value in up.ticks:
        at = round(up.at(value), 1)
        parts.append(tag("line", class_="grid", x1=LEFT, x2=right, y1=at, y2=at))
        parts.append(tag("text", show_y(value), x=LEFT - 7, y=f"{at + 4.5:.1f}", text_anchor="end"))
    for value in across.ticks:
        at = round(across.at(value), 1)
        parts.append(tag("line", class_="tick", x1=at, x2=at, y1=base, y2=base + 4))
        parts.append(tag("text", show_x(value), x=at, y=base + 18, text_anchor="middle"))
    parts.append(tag("line", class_="axis", x1=LEFT, x2=right, y1=base, y2=base))
    turned = f"translate(11 {(TOP + base) / 2:g}) rotate(-90)"
    centre = (LEFT + right) / 2
    parts.append(tag("text", x.title, class_="t", x=centre, y=high - 8, text_anchor="middle"))
    parts.append(tag("text", y.title, class_="t", transform=turned, text_anchor="middle"))
    drawn = [part for one in series for part in _drawn(one, across, up)]
    return tag("svg", *parts, *drawn, viewBox=f"0 0 {wide} {high}", role="img", aria_label=label)


def legend(series: Sequence[Series]) -> Markup:
    """Names with a piece of each line."""
    items = []
    for one in series:
        style = one.style % STYLES
        name = "l quiet" if one.quiet else f"l s{style}"
        dash = None if one.quiet else DASHES[style]
        swatch = []
        if one.line:
            swatch.append(tag("line", class_=name, stroke_dasharray=dash, x1=1, x2=33, y1=7, y2=7))
        if one.marks:
            swatch.append(mark(style, 17.0, 7.0, hollow=one.hollow))
        picture = tag("svg", *swatch, viewBox="0 0 34 14", aria_hidden="true")
        items.append(tag("li", picture, one.name))
    return tag("ul", *items, class_="legend")
