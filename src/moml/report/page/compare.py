"""Runs side by side: what differs, what they score, one picture with a line a run."""

from collections.abc import Sequence
from typing import Any

from moml.config.config import kind_of
from moml.report.page.curves import Curve, curves
from moml.report.page.html import Markup, Table, number, section, table, tag
from moml.report.page.known import Known, by_known
from moml.report.page.runs import Run, Swept, Tabled, Trained
from moml.report.page.settings import fields_of, value
from moml.report.page.sweep import ranked
from moml.report.page.table import METRICS, known, main_metric
from moml.report.page.train import known_of, samples_in_words
from moml.runs.model_scores import Looked


def compared(runs: Sequence[Run], looked: Sequence[Looked]) -> list[Markup]:
    """Sections for the runs that can be set beside each other; the style of a run is its place."""
    parts: list[Markup] = [table(_overview(runs))]
    trained: dict[Any, list[tuple[int, Trained, Looked]]] = {}
    tabled: dict[Any, list[tuple[int, Tabled]]] = {}
    for place, (run, found) in enumerate(zip(runs, looked, strict=True)):
        match run:
            case Trained():
                p = run.config.problem
                alike = (kind_of(p), getattr(p, "dataset", None))
                trained.setdefault(alike, []).append((place, run, found))
            case Tabled():
                about = (run.about["target"], main_metric(run.rows))
                tabled.setdefault(about, []).append((place, run))
    for group in trained.values():
        if len(group) > 1:
            parts += _trained(group)
    for group_ in tabled.values():
        if len(group_) > 1:
            parts += _tabled(group_)
    return parts


def _overview(runs: Sequence[Run]) -> Table:
    link = lambda place, run: tag("a", run.name, href=f"#run-{place}")
    rows = [[link(place, run), *_line(run)] for place, run in enumerate(runs, start=1)]
    columns = ["run", "score", "state", "method", "what the score is", "samples drawn"]
    return Table("The runs on this page", columns, rows)


def _line(run: Run) -> list[Any]:
    match run:
        case Trained():
            samples = run.rows[-1]["samples"] if run.rows else 0
            score = run.measure.say(run.score)
            return [score, run.state.word, run.config.method, run.measure.words, samples]
        case Swept():
            best = ranked(run)[0]
            method = f"{run.config.method}, {len(run.settings)} trainings"
            drawn = max((lines[-1]["samples"] for lines in run.lines if lines), default=0)
            words = f"{run.measure.words}, the best setting"
            return [run.measure.say(best.mean), run.state.word, method, words, drawn]
        case Tabled():
            metric, most = main_metric(run.rows), max(row["shots"] for row in run.rows)
            mine = known(run.rows, metric, "personal", run.name, 0)
            words = f"{METRICS[metric].words} of {run.about['target']}, {most} known rows"
            return [METRICS[metric].say(mine.mean[-1]), run.state.word, "table", words, None]


def _trained(group: Sequence[tuple[int, Trained, Looked]]) -> list[Markup]:
    runs = [run for _, run, _ in group]
    measure = runs[0].measure
    every = [fields_of(run.config) for run in runs]
    names = list(dict.fromkeys(name for one in every for name in one))
    apart = [name for name in names if len({repr(one.get(name)) for one in every}) > 1]
    rows = [[tag("code", name), *(value(one.get(name)) for one in every)] for name in apart]
    caption = "Settings that differ; all others are the same"
    parts = []
    if rows:
        differ = Table(caption, ["setting", *(run.name for run in runs)], rows, mixed=True)
        parts.append(section("What differs", table(differ)))
    drawn = curves([Curve(run.name, run.rows, place) for place, run, _ in group], measure)
    lines: list[Known] = []
    for place, run, found in group:
        first = [level for level in found.levels if level.who == found.levels[0].who]
        lines += known_of(first, run.name, place)
    if len(lines) > 1:
        told = "Newest models, mean over tasks; each run's own section has the spread."
        drawn.insert(
            0, by_known(lines, measure, samples_in_words(runs[0].config), told, bands=False)
        )
    if drawn:
        parts.append(section("Together", tag("div", *drawn, class_="pair")))
    return parts


def _tabled(group: Sequence[tuple[int, Tabled]]) -> list[Markup]:
    metric = main_metric(group[0][1].rows)
    lines = [known(run.rows, metric, "personal", run.name, place) for place, run in group]
    told = "The personal model of each run on its own held-out tasks."
    picture = by_known(lines, METRICS[metric], "rows", told, bands=False)
    settings = [
        {name: run.about[name] for name in ("task", "order", "weight", "shots", "seed", "model")}
        | (run.about.get("settings") or {})
        for _, run in group
    ]
    names = list(dict.fromkeys(name for one in settings for name in one))
    apart = [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]
    rows = [[tag("code", name), *(number(one.get(name)) for one in settings)] for name in apart]
    head = ["setting", *(run.name for _, run in group)]
    differ = (
        [table(Table("Settings that differ; all others are the same", head, rows, mixed=True))]
        if rows
        else []
    )
    return [section("Together", tag("div", picture, *differ, class_="pair"))]
