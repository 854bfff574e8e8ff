"""Elements of the page. Values are escaped unless a function here made them."""

import html
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypeVar

T = TypeVar("T")
VOID = ("meta", "line", "circle", "polygon", "polyline")
FIGURE = re.compile(r"–|[-−+]?[\d.,]+(e[-+]\d+)?( ± .*|\s%)?")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def join(parts: Iterable[object]) -> Markup:
    """Concatenate parts, escaped; None is skipped.

    >>> join(["a < b", None, Markup("<b>")])
    'a &lt; b<b>'
    """
    safe = lambda part: part if isinstance(part, Markup) else html.escape(str(part))
    return Markup("".join(safe(part) for part in parts if part is not None))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Make an element; attributes that are None are left out.

    >>> tag("th", "a & b", scope="col", class_=None)
    '<th scope="col">a &amp; b</th>'
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    inside = "".join(f' {key}="{html.escape(str(v))}"' for key, v in named.items() if v is not None)
    if name in VOID and not children:
        return Markup(f"<{name}{inside}{'' if name == 'meta' else '/'}>")
    return Markup(f"<{name}{inside}>{join(children)}</{name}>")


note = partial(tag, "p", class_="note")  # a highlighted remark
pair = partial(tag, "div", class_="pair")  # side by side where the page is wide enough


def number(value: object, digits: int = 4) -> str:
    """Format a value for a table.

    >>> number(0.123456), number(12345), number(None), number(True), number((40, 40))
    ('0.1235', '12,345', '–', 'yes', '40, 40')
    """
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.{digits}g}"
        case list() | tuple():
            return ", ".join(number(one, digits) for one in value) or "none"
        case _:
            return str(value)


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, mixed: bool = False
) -> Markup:
    """Make a table that scrolls if it is wider than the page; the first cell is the row header.

    Columns of numbers are aligned right, unless the table is `mixed`.
    """
    texts = [[cell if isinstance(cell, Markup) else number(cell) for cell in row] for row in rows]
    figures = [
        i > 0 and not mixed and all(FIGURE.fullmatch(row[i]) for row in texts)
        for i in range(len(columns))
    ]
    kind = lambda i, text: "n" if figures[i] else "w" if len(text) > 28 else None
    head = [
        tag("th", name, scope="col", class_="n" if right else None)
        for name, right in zip(columns, figures, strict=True)
    ]
    body = []
    for first, *others in texts:
        cells = [tag("td", text, class_=kind(i, text)) for i, text in enumerate(others, start=1)]
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
    parts = (tag("caption", tag("span", caption)), tag("thead", tag("tr", *head)))
    whole = tag("table", *parts, tag("tbody", *body))
    return tag("div", whole, class_="scroll", role="group", aria_label=caption, tabindex="0")


def folded(summary: str, *children: object) -> Markup:
    """Content that opens on a click."""
    return tag("details", tag("summary", summary), *children)


def section(title: str, *children: object) -> Markup:
    """A heading with its content."""
    return tag("section", tag("h3", title), *children)


def tiles(pairs: Sequence[tuple[str, str]], kind: str = "tiles") -> Markup:
    """Names with their values, as large `tiles` or as small `facts`."""
    return tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in pairs), class_=kind)


def upper(text: str) -> str:
    """Capitalise the first letter."""
    return text[:1].upper() + text[1:]


def thinned(rows: Sequence[T], most: int) -> list[T]:
    """At most this many of the rows, evenly spaced, with the first and the last.

    >>> thinned(range(10), 4)
    [0, 3, 6, 9]
    """
    n = len(rows)
    if n <= most:
        return list(rows)
    return [rows[round(i * (n - 1) / (most - 1))] for i in range(most)]
