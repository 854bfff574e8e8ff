"""Runs side by side: different settings, scores, and one chart with a line for each run."""

from collections.abc import Hashable, Sequence

from moml.config.config import kind_of
from moml.report.page.charts import Curve, by_known, curves
from moml.report.page.html import Markup, number, pair, section, table, tag
from moml.report.page.runs import METRICS, Run, Swept, Tabled, Trained
from moml.report.page.settings import fields_of
from moml.report.page.sweep import ranked
from moml.report.page.table import known_line
from moml.report.page.train import known_lines, unit_of
from moml.runs.model_scores import Looked
from moml.types import Record


def compared(runs: Sequence[Run], looked: Sequence[Looked]) -> list[Markup]:
    """Sections that compare runs of one problem; a run has the same style in all charts."""
    trained: dict[Hashable, list[tuple[int, Trained, Looked]]] = {}
    tabled: dict[Hashable, list[tuple[int, Tabled]]] = {}
    for place, (run, found) in enumerate(zip(runs, looked, strict=True)):
        if isinstance(run, Trained):
            problem = run.config.problem
            key = kind_of(problem), getattr(problem, "dataset", None)
            trained.setdefault(key, []).append((place, run, found))
        elif isinstance(run, Tabled):
            tabled.setdefault((run.about["target"], run.metric), []).append((place, run))
    rows = [
        [tag("a", run.name, href=f"#run-{place}"), *_line(run)]
        for place, run in enumerate(runs, start=1)
    ]
    columns = ["run", "score", "state", "method", "metric", "samples drawn"]
    parts = [table("The runs on this page", columns, rows)]
    for group in trained.values():
        parts += _trained(group) if len(group) > 1 else []
    for tables in tabled.values():
        parts += [_tabled(tables)] if len(tables) > 1 else []
    return parts


def _line(run: Run) -> list[object]:
    """Score, state, method, metric and samples of a run."""
    label = run.state.label
    match run:
        case Trained():
            samples = run.rows[-1]["samples"] if run.rows else 0
            score = run.measure.say(run.score)
            return [score, label, run.config.method, run.measure.words, samples]
        case Swept():
            method = f"{run.config.method}, {len(run.settings)} trainings"
            samples = max((lines[-1]["samples"] for lines in run.lines if lines), default=0)
            words = f"{run.measure.words}, the best setting"
            return [run.measure.say(ranked(run)[0].mean), label, method, words, samples]
        case Tabled():
            measure = METRICS[run.metric]
            mean = known_line(run.rows, run.metric, "personal", run.name, 0).points[-1][1]
            words = f"{measure.words} of {run.about['target']}, {run.most} known rows"
            return [measure.say(mean), label, "table", words, None]


def _differences(runs: Sequence[Run], settings: Sequence[Record]) -> list[Markup]:
    """A table of the settings that differ, if any."""
    names = dict.fromkeys(name for one in settings for name in one)
    differ = [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]
    rows = [[tag("code", n), *(number(one.get(n), 6) for one in settings)] for n in differ]
    caption, columns = "Settings that differ; all others are the same", [run.name for run in runs]
    return [table(caption, ["setting", *columns], rows, mixed=True)] if rows else []


def _trained(group: Sequence[tuple[int, Trained, Looked]]) -> list[Markup]:
    runs = [run for _, run, _ in group]
    measure = runs[0].measure
    differ = _differences(runs, [fields_of(run.config) for run in runs])
    parts = [section("What differs", *differ)] if differ else []
    drawn = curves([Curve(run.name, run.rows, place) for place, run, _ in group], measure)
    lines = []
    for place, run, found in group:
        first = [level for level in found.levels if level.who == found.levels[0].who]
        lines += known_lines(first, run.name, place)
    if len(lines) > 1:
        caption = "Newest models, mean over tasks; each run's own section has the spread."
        drawn.insert(0, by_known(lines, measure, unit_of(runs[0].config), caption, bands=False))
    return [*parts, section("Together", pair(*drawn))] if drawn else parts


def _tabled(group: Sequence[tuple[int, Tabled]]) -> Markup:
    metric, runs = group[0][1].metric, [run for _, run in group]
    lines = [known_line(run.rows, metric, "personal", run.name, place) for place, run in group]
    caption = "The personal model of each run on its own held-out tasks."
    picture = by_known(lines, METRICS[metric], "rows", caption, bands=False)
    names = ("task", "order", "weight", "shots", "seed", "model")
    settings = [{name: run.about[name] for name in names} | run.about["settings"] for run in runs]
    return section("Together", pair(picture, *_differences(runs, settings)))
