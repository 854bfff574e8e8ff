"""Result rows of clients as lines of tables, on a terminal and on a page: one line per model."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from moml.types import Record

NAMES = {
    "took-part": "took part",
    "not-drawn": "not drawn yet",
    "unseen": "never took part",
}
FIGURES = {"worst tenth": "worst_decile", "spread": "spread"}  # column -> metric
COUNTS = {"worse than global": "worse_than_global", "worse than local": "worse_than_local"}
ABOUT = {  # what the models are
    "global": "the server's model",
    "kept": "the model that the client keeps",
    "fine-tuned": "the server's model after SGD on the client's training samples",
    "adapted": "the server's model after some test samples, scored on the others",
    "local": "the client's own model in a run of method local",
}


class Client(NamedTuple):
    """One client with its scores, by the name of the model."""

    group: str
    number: int
    images: int
    scores: dict[str, float | None]  # None: the model is not finite

    @property
    def own(self) -> str:
        """The name of the client's own model, else that of the first after some samples."""
        names = [name for name in self.scores if name not in ("global", "local")]
        return names[0] if names else "global"

    def rank(self, metric: str, model: str | None = None) -> float:
        """The score of a model, by default its own one, as a number of which more is better."""
        value = self.scores[model or self.own]
        return -math.inf if value is None else value if "accuracy" in metric else -value


def model_name(setting: Record) -> str:
    """A model with what it was made from.

    >>> model_name({"model": "adapted", "shots": 5}), model_name({"model": "kept"})
    ('adapted, 5 shots', 'kept')
    """
    name, count = setting["model"], setting.get("epochs", setting.get("shots"))
    if count is None:
        return name
    unit = "epoch" if "epochs" in setting else "shot"
    return f"{name}, {count} {unit}{'' if count == 1 else 's'}"


def text_of(value: float | int | None, metric: str) -> str:
    """A score: an accuracy in percent, or an error."""
    if value is None:
        return "-"
    return f"{value:.1f}" if "accuracy" in metric else f"{value:.4g}"


def metric_in(rows: Sequence[Record]) -> str:
    """What clients are scored by."""
    return next(row["metric"] for row in rows if "client" in row["setting"])


def group_lines(rows: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Columns and lines of a table: the figures of each model over each group of clients."""
    metric, found = metric_in(rows), dict[tuple[str, str], Record]()
    for row in rows:
        setting = row["setting"]
        if "group" in setting and "client" not in setting:
            key = setting["group"], model_name(setting)
            line = found.setdefault(key, {"clients": setting["clients"]})
            line[row["metric"]] = row["mean"]
    counts = {name: m for name, m in COUNTS.items() if any(m in line for line in found.values())}
    figures = {"mean": metric, "weighted": f"{metric}_weighted"} | FIGURES
    columns = ["clients", "model", "count", *figures, *counts]
    lines = [
        [NAMES[group], model, str(line["clients"]),
         *(text_of(line[m], metric) for m in figures.values()),
         *(f"{line[m]:.0f}" if m in line else "-" for m in counts.values())]
        for (group, model), line in found.items()
    ]  # fmt: skip
    return columns, lines


def clients_in(rows: Sequence[Record]) -> list[Client]:
    """Every client, the worst served by its own model first."""
    found: dict[tuple[str, int], Client] = {}
    for row in rows:
        setting = row["setting"]
        if "client" in setting:
            key = setting["group"], setting["client"]
            one = found.setdefault(key, Client(*key, setting["images"], {}))
            one.scores[model_name(setting)] = row["mean"]
    metric = metric_in(rows)
    return sorted(found.values(), key=lambda one: one.rank(metric))


def client_lines(clients: Sequence[Client], metric: str) -> tuple[list[str], list[list[str]]]:
    """Columns and lines of a table of single clients, a column per model."""
    models = list(dict.fromkeys(name for one in clients for name in one.scores))
    order = [*ABOUT]
    models.sort(key=lambda name: order.index(name.split(",")[0]))
    lines = [
        [NAMES[one.group], str(one.number), str(one.images),
         *(text_of(one.scores.get(name), metric) for name in models)]
        for one in clients
    ]  # fmt: skip
    return ["clients", "number", "test samples", *models], lines
