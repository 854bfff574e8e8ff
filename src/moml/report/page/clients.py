"""Clients on the page: a table by model, and a picture of every client."""

from collections.abc import Sequence

from moml.report.clients import (
    ABOUT,
    NAMES,
    client_lines,
    clients_in,
    group_lines,
    metric_in,
)
from moml.report.page.charts import SHARES, by_rank
from moml.report.page.html import Markup, table, tag
from moml.report.page.runs import Measure
from moml.report.page.svg import Axis, Series, picture
from moml.report.terminal import plural
from moml.types import Record

LISTED = 100  # clients or tasks in a table


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
        for model, hollow in ((own, False), ("global", True)):
            points, name = by_rank([one.scores[model] for one in mine]), f"{NAMES[group]}, {model}"
            series.append(Series(name, points, i, line=False, hollow=hollow))
    better = sum(one.rank(metric) > one.rank(metric, "global") for one in every)
    gain = f"it serves {better:,} of {plural(len(every), 'client')} better than the global model"
    caption = f"Two points per client, sorted by the score of its own model; {gain}."
    label = f"{words.capitalize()} of each client by its own model and by the global one; {gain}"
    cut = f"the worst {LISTED} of {len(every):,}" if len(every) > LISTED else "the worst first"
    data = table(f"Single clients, {cut}", *client_lines(every[:LISTED], metric))
    x = Axis("clients, the worst first, %", ticks=SHARES)
    return [*parts, picture(series, x, Axis(f"{words}{unit}"), label, caption, data)]
