"""The run of a user's own table on the page; its tasks' ids stay out of it."""

from collections.abc import Sequence
from typing import Any

from moml.report.page.html import Markup, Table, join, note, section, table, tag, tiles, upper
from moml.report.page.known import Known, by_known
from moml.report.page.runs import Measure, Row, Tabled
from moml.report.terminal.table_scores import verdict

METRICS = {
    "rmse": Measure("root mean squared error", "root mean squared error"),
    "accuracy": Measure("accuracy, %", "accuracy", True, "\u00a0%"),
    "log_loss": Measure("log-loss", "log-loss"),
}
MODELS = {
    "personal": "adapted to each task's known rows",
    "pooled": "the same for every task",
    "per-task": "a ridge of the task's known rows alone",
    "shrunken-mean": "the mean of the known targets, drawn towards that of all",
}


def main_metric(rows: Sequence[Row]) -> str:
    """What a run is judged by."""
    return "rmse" if any(row["metric"] == "rmse" for row in rows) else "accuracy"


def known(rows: Sequence[Row], metric: str, model: str, name: str, style: int) -> Known:
    """One model's scores by number of known rows, with the tasks' own where they were kept."""
    mine = [row for row in rows if row["metric"] == metric and row["model"] == model]
    spread = all("quantiles" in row for row in mine)
    ends = lambda place: [row["quantiles"][place] for row in mine] if spread else []
    shots, means = [row["shots"] for row in mine], [row["mean"] for row in mine]
    return Known(name, shots, means, ends(0), ends(-1), style)


def lead(run: Tabled) -> Markup:
    """What was run, in a sentence or two."""
    about, columns = run.about, run.about["columns"]
    count = len(columns["inputs"])
    target = columns["target"]
    kind = f"one of {len(target['classes'])} classes" if target["classes"] else "a number"
    held, trained = len(about["held_out"]), len(about["trained"])
    return tag(
        "p",
        "Predicts ", tag("code", about["target"]), f", {kind}, from {count:,} columns, for each ",
        tag("code", about["task"]), f". The model that is kept learned from {trained:,} tasks; the "
        f"scores are on {held:,} held-out tasks, by a model that had not seen them.",
        class_="lead",
    )  # fmt: skip


def body(run: Tabled) -> list[Any]:
    """All sections but how to repeat it."""
    metric, most = main_metric(run.rows), max(row["shots"] for row in run.rows)
    measure = METRICS[metric]
    at = {(row["model"], row["shots"]): row["mean"] for row in run.rows if row["metric"] == metric}
    pairs = [
        (f"{measure.words}, {most} known rows", measure.say(at["personal", most])),
        ("the same, none known", measure.say(at["personal", 0])),
        ("tasks that it keeps", f"{run.tasks:,}"),
        ("rows scored", f"{run.rows[0]['rows']:,}"),
    ]
    parts: list[Any] = [lead(run), tiles(pairs), tag("p", upper(verdict(run.rows)) + ".")]
    each = list(dict.fromkeys(row["metric"] for row in run.rows))
    pictures = [figure for name in each for figure in _pictures(run.rows, name)]
    parts.append(section("Scores by known rows", tag("div", *pictures, class_="pair")))
    if not all("quantiles" in row for row in run.rows):
        parts.append(note("This run is of a version that kept no spread of the tasks' own scores."))
    parts += [table(_score_table(run.rows, name)) for name in each]
    parts.append(section("What was tried", *_tried(run.about)))
    parts.append(section("Columns", table(_columns(run.about))))
    return parts


def _pictures(rows: Sequence[Row], metric: str) -> list[Markup]:
    """All models; and how the tasks' own scores lie for ours and the pooled one."""
    measure = METRICS[metric]
    models = list(dict.fromkeys(row["model"] for row in rows))
    lines = [known(rows, metric, model, model, i) for i, model in enumerate(models)]
    caption = (
        f"{upper(measure.words)} on the same rows of the same held-out tasks, by how many of "
        "their other rows are known."
    )
    made = [by_known(lines, measure, "rows", caption, bands=False)]
    if lines[0].low:
        caption = (
            "The same for the tasks one by one: the band holds all but the lowest and the highest "
            "tenth of the tasks' own scores."
        )
        made.append(by_known(lines[:2], measure, "rows", caption))
    return made


def _score_table(rows: Sequence[Row], metric: str) -> Table:
    mine = [row for row in rows if row["metric"] == metric]
    shots = list(dict.fromkeys(row["shots"] for row in mine))
    lines = []
    for model in dict.fromkeys(row["model"] for row in mine):
        own = {row["shots"]: row for row in mine if row["model"] == model}
        named = join([model, tag("small", MODELS[model])])
        lines.append([named, *(f"{own[k]['mean']:.4g} ± {own[k]['std']:.2g}" for k in shots)])
    words = f"{upper(METRICS[metric].words)} by known rows; ± is the spread of the tasks' own"
    return Table(words, ["model", *(str(k) for k in shots)], lines)


def _tried(about: Row) -> list[Markup]:
    rows = [
        [one["kind"], one["eta"], one["beta"], one["loss"], one["kept"]]
        for one in about["personal"]["scores"]
    ]
    columns = ["kind of network", "eta", "beta", "loss", "averaged into the model"]
    tasks = about["personal"]["scores"][0]["tasks"]
    told = f"Loss on {tasks:,} training tasks that decided when to stop and what to average"
    return [table(Table(told, columns, rows))]


def _columns(about: Row) -> Table:
    inputs, target = about["columns"]["inputs"], about["columns"]["target"]
    role = {about[name]: name for name in ("task", "order", "weight") if about[name]}
    rows = [[target["name"], target["kind"], "target"]]
    rows += [
        [name, "–", told] for name, told in role.items() if name not in {i["name"] for i in inputs}
    ]
    rows += [
        [
            one["name"],
            one["kind"],
            " and ".join(["input", *([role[one["name"]]] if one["name"] in role else [])]),
        ]
        for one in inputs
    ]
    apart = {row[0] for row in rows}
    rows += [
        [name, "–", f"left out: {why}"]
        for name, why in about["columns"]["left_out"].items()
        if name not in apart
    ]
    return Table("Columns of the table, and what became of them", ["column", "kind", "role"], rows)
