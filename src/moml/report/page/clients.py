"""Clients on the page: a table by model, and a picture of every client."""

from collections.abc import Sequence

from moml.report.clients import (
    ABOUT,
    NAMES,
    Client,
    client_lines,
    clients_in,
    group_lines,
    metric_in,
)
from moml.report.page.charts import SHARES
from moml.report.page.html import Markup, table, tag, thinned
from moml.report.page.runs import Measure
from moml.report.page.svg import Axis, Point, Series, picture
from moml.report.terminal import plural
from moml.types import Record

LISTED = 100  # clients in a table
POINTS = 400  # of a series in a chart


def key_figures(rows: Sequence[Record], measure: Measure) -> list[tuple[str, str]]:
    """The worst tenth of those that took part, and the mean of strangers, by their own models."""
    wanted = {
        "took-part": ("worst_decile", "worst tenth of the clients"),
        "unseen": (metric_in(rows), f"clients that {NAMES['unseen']}"),
    }
    found: dict[str, tuple[str, str]] = {}
    for row in rows:
        group, model = row["setting"]["group"], row["setting"]["model"]
        metric, words = wanted.get(group, ("", ""))
        if row["metric"] == metric and "client" not in row["setting"] and model != "global":
            found.setdefault(group, (f"{words}, {model}", measure.say(row["mean"])))
    return list(found.values())


def clients(rows: Sequence[Record], step: int | None = None) -> list[Markup]:
    """Scores of groups of clients by model, and of each client; `step`: of stored ones."""
    metric, every = metric_in(rows), clients_in(rows)
    words = metric.replace("_", " ")
    unit = ", %" if "accuracy" in metric else ""
    columns, lines = group_lines(rows)
    parts = [table(f"{words.capitalize()}{unit} of clients by model", columns, lines)]
    models = dict.fromkeys(row["setting"]["model"] for row in rows)
    about = "; ".join(f"{name}: {ABOUT[name]}" for name in models)
    when = "" if step is None else f" Stored by moml score at step {step:,}."
    text = f"{about}. Weighted: by numbers of test samples.{when}"
    parts.append(tag("p", text, class_="soft"))
    series = []
    for i, group in enumerate(dict.fromkeys(one.group for one in every)):
        mine = [one for one in every if one.group == group]
        own = mine[0].own
        series.append(Series(f"{NAMES[group]}, {own}", _points(mine, own), i, line=False))
        hollow = _points(mine, "global")
        series.append(Series(f"{NAMES[group]}, global", hollow, i, line=False, hollow=True))
    better = sum(one.rank(metric) > one.rank(metric, "global") for one in every)
    gain = f"it serves {better:,} of {plural(len(every), 'client')} better than the global model"
    caption = f"Two points per client, sorted by the score of its own model; {gain}."
    label = f"{words.capitalize()} of each client by its own model and by the global one; {gain}"
    cut = f"the worst {LISTED} of {len(every):,}" if len(every) > LISTED else "the worst first"
    data = table(f"Single clients, {cut}", *client_lines(every[:LISTED], metric))
    x = Axis("clients, the worst first, %", ticks=SHARES)
    return [*parts, picture(series, x, Axis(f"{words}{unit}"), label, caption, data)]


def _points(clients: Sequence[Client], model: str) -> list[Point]:
    """Points of the clients in their order; x is the rank in percent."""
    at = [100 * (i + 0.5) / len(clients) for i in range(len(clients))]
    values = [one.scores[model] for one in clients]
    return thinned([(x, y) for x, y in zip(at, values, strict=True) if y is not None], POINTS)
