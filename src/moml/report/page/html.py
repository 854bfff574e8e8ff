"""HTML of the page: everything is text, and escaped, unless a function here has made it."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

VOID = ("meta", "line", "rect", "circle", "polygon", "polyline")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def safe(value: Any) -> Markup:
    """A value as HTML.

    >>> safe("a < b"), safe(Markup("<b>"))
    ('a &lt; b', '<b>')
    """
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def join(parts: Iterable[Any]) -> Markup:
    """Parts after one another; those that are None are left out."""
    return Markup("".join(safe(part) for part in parts if part is not None))


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element; an attribute that is None is left out.

    >>> tag("th", "a & b", scope="col", class_=None)
    '<th scope="col">a &amp; b</th>'
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    told = "".join(f' {key}="{html.escape(str(v))}"' for key, v in named.items() if v is not None)
    if name in VOID and not children:
        return Markup(f"<{name}{told}{'' if name == 'meta' else '/'}>")
    return Markup(f"<{name}{told}>{join(children)}</{name}>")


class Table(NamedTuple):
    """Columns and rows of text or numbers; the first cell of a row names it.

    Columns of numbers are set to the right, unless the table is `mixed`.
    """

    caption: str
    columns: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    mixed: bool = False


def number(value: Any) -> str:
    """A value as tables show it.

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
            return f"{value:.4g}"
        case list() | tuple():
            return ", ".join(map(number, value)) or "none"
        case _:
            return str(value)


FIGURE = re.compile(r"–|[-−]?[\d.,]+(e[-+]\d+)?( ± .*|\s%)?")


def table(given: Table) -> Markup:
    """A table that scrolls by itself where it is wider than the page."""
    told = [
        [cell if isinstance(cell, Markup) else number(cell) for cell in row] for row in given.rows
    ]
    columns = range(len(given.columns))
    figures = [
        i > 0 and not given.mixed and all(FIGURE.fullmatch(row[i]) for row in told) for i in columns
    ]
    kind = lambda i, text: "n" if figures[i] else "w" if len(text) > 28 else None
    head = [
        tag("th", name, scope="col", class_="n" if right else None)
        for name, right in zip(given.columns, figures, strict=True)
    ]
    rows = [
        tag("tr", tag("th", row[0], scope="row"),
            *(tag("td", row[i], class_=kind(i, row[i])) for i in columns[1:]))
        for row in told
    ]  # fmt: skip
    whole = tag(
        "table",
        tag("caption", tag("span", given.caption)),
        tag("thead", tag("tr", *head)),
        tag("tbody", *rows),
    )
    return tag("div", whole, class_="scroll", role="group", aria_label=given.caption, tabindex="0")


def folded(summary: str, *children: Any) -> Markup:
    """What opens when asked."""
    return tag("details", tag("summary", summary), *children)


def figure(
    pictures: Sequence[Markup], caption: Any, data: Sequence[Table], names: Markup | None = None
) -> Markup:
    """Pictures, the names of what is in them, what they show, and their data as tables."""
    panels = tag("div", *pictures, class_="panels" if len(pictures) > 1 else "panel")
    under = folded("The data as a table", *map(table, data))
    return tag("figure", panels, join([names]), tag("figcaption", caption), under)


def note(*words: Any) -> Markup:
    """Something to know."""
    return tag("p", *words, class_="note")


def code(text: str) -> Markup:
    """A block to copy: one click takes all of it."""
    return tag("pre", tag("code", text), class_="tall", tabindex="0")


def section(title: str, *children: Any) -> Markup:
    """A heading, and what stands under it."""
    return tag("section", tag("h3", title), *children)


def tiles(pairs: Sequence[tuple[Any, str]], kind: str = "tiles") -> Markup:
    """Names with their values: the few that matter most as tiles, others as facts."""
    each = [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs]
    return tag("dl", *each, class_=kind)


def upper(words: str) -> str:
    """With a capital first."""
    return words[:1].upper() + words[1:]


def thinned(rows: Sequence[Any], most: int) -> list[Any]:
    """At most so many of these, evenly, with the first and the last.

    >>> thinned(range(10), 4)
    [0, 3, 6, 9]
    """
    n = len(rows)
    if n <= most:
        return list(rows)
    return [rows[round(i * (n - 1) / (most - 1))] for i in range(most)]
