"""The run of a user's own table on the page; it shows no ids of tasks."""

from collections.abc import Sequence

from moml.report.page.charts import by_known
from moml.report.page.html import Markup, join, pair, section, table, tag, tiles, upper
from moml.report.page.runs import METRICS, Tabled
from moml.report.page.svg import Series
from moml.report.terminal import differences, plural, score_grid, verdict
from moml.types import Record

DECIDED = "which decided when to stop and what to average"
MODELS = {
    "personal": "adapted to each task's known rows",
    "pooled": "the same for every task",
    "per-task": "a ridge regression on the task's known rows only",
    "shrunken-mean": "the mean of the known targets, shrunken towards the mean of all tasks",
    "lightgbm": "LightGBM with features of the task's known rows",
}


def known_line(rows: Sequence[Record], metric: str, model: str, name: str, style: int) -> Series:
    """Scores of one model by known rows, with their spread over the tasks."""
    mine = [row for row in rows if row["metric"] == metric and row["model"] == model]
    band = [(row["quantiles"][0], row["quantiles"][-1]) for row in mine]
    return Series(name, [(row["shots"], row["mean"]) for row in mine], style, band)


def _lead(about: Record, scored: int) -> Markup:
    """What the run predicts, what it learned from and what `scored` tasks it is scored on."""
    classes = about["columns"]["target"]["classes"]
    kind = f"one of {len(classes)} classes" if classes else "a number"
    said = f"the scores are on {scored:,} held-out tasks, by a model that was not trained on them."
    if not about["held_out"]:
        said = "each of them is scored by members that were not trained on it."
    return tag(
        "p", "Predicts ", tag("code", about["target"]),
        f", {kind}, from {len(about['columns']['inputs']):,} columns, for each ",
        tag("code", about["task"]), f". {_learned(about)}; {said}",
        class_="lead",
    )  # fmt: skip


def _learned(about: Record) -> str:
    tasks, later = f"{len(about['trained']):,} tasks", about.get("continued")
    if later is None:
        return f"The final model was trained on {tasks}"
    how = (
        "Its common parameters were trained on" if later["trained"] else "Its model is the same, of"
    )
    whose = "new tasks" if later["scored"] else "tasks of the run before"
    return f"The run continues another one. {how} {tasks} in all; scored are {whose}"


def body(run: Tabled) -> list[Markup]:
    """All sections but how to repeat it."""
    measure, most = METRICS[run.metric], run.most
    personal = known_line(run.rows, run.metric, "personal", run.name, 0)
    at = {shots: measure.say(mean) for shots, mean in personal.points}
    pairs = [
        (f"{measure.words}, {most} known rows", at[most]),
        ("the same, no known rows", at[0]),
        ("tasks in the run", f"{run.tasks:,}"),
        ("rows scored", f"{run.rows[0]['rows']:,}"),
    ]
    parts = [
        _lead(run.about, run.rows[0]["tasks"]),
        tiles(pairs),
        tag("p", upper(verdict(run.rows)) + "."),
        *_coverage(run.about.get("coverage", [])),
    ]
    metrics = list(dict.fromkeys(row["metric"] for row in run.rows))
    pictures = [figure for name in metrics for figure in _pictures(run.rows, name)]
    parts.append(section("Scores by known rows", pair(*pictures)))
    for name in metrics:
        shots, scores = score_grid(run.rows, name)
        caption = (
            f"{upper(METRICS[name].words)} by known rows, {plural(run.rows[0]['tasks'], 'task')}; "
            "± is the standard deviation over tasks"
        )
        lines = [[join([m, tag("small", MODELS[m])]), *cells] for m, cells in scores.items()]
        parts.append(table(caption, ["model", *map(str, shots)], lines))
        parts += [
            tag("p", upper(line) + ".", class_="soft") for line in differences(run.rows, name)
        ]
    tried = run.about["personal"]["scores"]
    fields = ["kind", "eta", "beta", "loss", "kept"]
    columns = ["kind of member", "eta", "beta", "loss", "averaged into the model"]
    tasks = f"{tried[0]['tasks']:,} training tasks"
    how = "each by members that have not seen it" if "weight" in tried[0] else DECIDED
    caption = f"Loss on {tasks}, {how}"
    caption += ", in the run that this one continues" if "continued" in run.about else ""
    if "weight" in tried[0]:
        fields, columns = [*fields, "weight"], [*columns, f"weight of the kind, {most} known rows"]
    rows = [[_cell(one[field]) for field in fields] for one in tried]
    parts.append(section("What was tried", table(caption, columns, rows)))
    some = (
        "held-out tasks"
        if run.about["held_out"]
        else "tasks, each by members that have not seen it,"
    )
    parts += _importance(run.about.get("importance", []), some)
    return [*parts, section("Columns", _columns(run.about))]


def _coverage(rows: Sequence[Record]) -> list[Markup]:
    """How many rows the intervals hold after the most known rows, if there are any."""
    for row in rows[-1:]:
        if row["share"] is not None:
            held = f"hold {100 * row['share']:.0f} % of the rows of a task"
            after = f"after {plural(row['shots'], 'known row')}"
            by = f"{row['tasks']:,} tasks, the bounds of each from the others"
            return [tag("p", f"Intervals of {row['level']} {held} {after} ({by}).")]
    return []


def _importance(ranks: Sequence[Record], tasks: str) -> list[Markup]:
    """The score without what each input says, the most important first."""
    if not ranks:
        return []
    measure = METRICS[ranks[0]["metric"]]
    name = lambda row: tag("code", row["input"])
    rows = [
        [name(row), measure.say(row["permuted"]), f"{row['permuted'] - row['score']:+.3g}"]
        for row in ranks
    ]
    caption = (
        f"{upper(measure.words)} on {tasks} with the input permuted over the rows of all of "
        f"them; {measure.say(ranks[0]['score'])} with all inputs"
    )
    return [section("Importance of inputs", table(caption, ["input", "permuted", "rise"], rows))]


def _cell(value: object) -> object:
    return "–" if value is None else value


def _pictures(rows: Sequence[Record], metric: str) -> list[Markup]:
    """Scores of all models, and the spread over tasks of the personal and the pooled model."""
    measure = METRICS[metric]
    models = dict.fromkeys(row["model"] for row in rows)
    lines = [known_line(rows, metric, model, model, i) for i, model in enumerate(models)]
    caption = (
        f"{upper(measure.words)} on the same rows of the same held-out tasks, by how many of "
        "their other rows are known."
    )
    spread = (
        "Spread over the tasks: the band contains all but the lowest and the highest tenth of the "
        "scores. The lines are over all rows; a few tasks with large errors can lift them above it."
    )
    return [
        by_known(lines, measure, "rows", caption, bands=False),
        by_known(lines[:2], measure, "rows", spread),
    ]


def _columns(about: Record) -> Markup:
    """Every column of the table with its role."""
    columns = about["columns"]
    kinds = {one["name"]: one["kind"] for one in columns["inputs"]}
    roles = {about[role]: role for role in ("task", "order", "weight") if about[role]}
    rows = [[columns["target"]["name"], columns["target"]["kind"], "target"]]
    rows += [[name, "–", role] for name, role in roles.items() if name not in kinds]
    for name, kind in kinds.items():
        rows.append([name, kind, f"input and {roles[name]}" if name in roles else "input"])
    listed = {row[0] for row in rows}
    left_out = columns["left_out"].items()
    rows += [[name, "–", f"left out: {why}"] for name, why in left_out if name not in listed]
    return table("Columns of the table and their roles", ["column", "kind", "role"], rows)
