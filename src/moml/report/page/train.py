"""A training run on the page: its description, curves and scores, its clients, fits and memory."""

from collections.abc import Sequence
from shlex import quote

import numpy as np

from moml.config.config import Config, composed, kind_of
from moml.config.plugins import plugin_words
from moml.config.problems import Clients, Episodes, Sine, Synthetic, Table
from moml.data import SETS
from moml.methods import summary
from moml.report.page.charts import SHARES, Curve, by_known, by_rank, curves, over_tasks
from moml.report.page.clients import LISTED, clients, key_figures
from moml.report.page.html import Markup, note, number, pair, section, table, tag, thinned, tiles
from moml.report.page.runs import Trained
from moml.report.page.svg import Axis, Series, chart, figure, legend, picture, wide_range
from moml.report.terminal import cost_line, plural, size
from moml.runs.model_scores import TOOK_PART, Fit, Level, Looked, Tracked
from moml.training.personal import parts_that_keep
from moml.types import Record

MORE = "Scores by known samples, clients, fits and memories are computed on request: "


def tasks_of(config: Config) -> str:
    """The tasks of a run in words."""
    images = lambda dataset: SETS[dataset].title.partition(",")[0]
    match config.problem:
        case Sine() as p:
            return f"{p.n:,} sine waves{f' with noise {p.noise:g}' if p.noise else ''}"
        case Synthetic() as p:
            return f"{p.n:,} tasks of Synthetic({p.a:g}, {p.b:g})"
        case Episodes() as p:
            tasks = "fresh tasks" if p.n is None else f"{p.n:,} tasks"
            return f"{tasks} of {p.ways} classes of {images(p.dataset)}"
        case Clients() as p:
            return f"{p.n:,} clients of {images(p.dataset)}, split {p.partition}"
        case Table() as p:
            return f"{p.n:,} tasks of rows of {p.path}"
        case p:
            tasks = "fresh tasks" if p.n is None else f"{p.n:,} tasks"
            return f"{tasks} of {kind_of(p)}"


def unit_of(config: Config) -> str:
    """The unit of `shots`."""
    return "samples a class" if isinstance(config.problem, Episodes) else "samples"


def lead(config: Config, *more: str) -> Markup:
    """The first paragraph: the method, the tasks, and more."""
    about = f", {summary(config.method).rstrip('.')}; on {tasks_of(config)}"
    return tag("p", tag("code", config.method), about, *more, class_="lead")


def _keeps(config: Config) -> bool:
    """Whether the score is that of the models that clients keep."""
    scored = config.problem.all_scored
    return scored and parts_that_keep(composed(config)) is not None


def _score_in_words(run: Trained) -> str:
    config = run.config
    each = " of each class" if isinstance(config.problem, Episodes) else ""
    of = f"on {plural(config.test_tasks, 'unseen task')}"
    if config.problem.all_scored:
        of = run.measure.of
    if _keeps(config):
        words = "the models that these clients keep, on all of their test samples"
        score = f"{run.measure.words} {of}, by {words}"
        return f" Its last score is {run.measure.say(run.score)}: {score}."
    steps, samples = plural(config.test_steps, "step"), plural(config.shots, "sample")
    score = f"{run.measure.words} {of}, after {steps} on {samples}{each}"
    return f" Its last score is {run.measure.say(run.score)}: {score}."


def _figures(run: Trained, done: Record, looked: Looked) -> list[tuple[str, str]]:
    """The four figures at the top."""
    pairs = [(f"{run.measure.words}, last score", run.measure.say(run.score))]
    if looked.clients:
        pairs += key_figures(looked.clients, run.measure)
    if "cost" in done:
        pairs.append(("sent, both ways", size(done["cost"]["down"] + done["cost"]["up"])))
    names = {"training loss, last": "loss", "samples drawn": "samples", "iterations": "iterations"}
    return [*pairs, *((name, number(done[field])) for name, field in names.items())][:4]


def body(run: Trained, looked: Looked) -> list[Markup]:
    """All sections but the settings."""
    done: Record = run.rows[-1] if run.rows else {"iterations": 0, "samples": 0, "loss": None}
    progress = f", {done['iterations']:,} iterations, seed {run.config.seed}."
    score = "" if run.score is None else _score_in_words(run)
    parts = [lead(run.config, progress, score), tiles(_figures(run, done, looked))]
    if looked.wrong:
        parts.append(note("Not all of this page could be computed: ", looked.wrong))
    elif run.rows and not looked.levels:
        more = plugin_words(run.config.plugin)
        command = tag("code", f"moml report {quote(str(run.folder))} --score{more}")
        parts.append(tag("p", MORE, command, class_="soft"))
    drawn = curves([Curve(run.name, run.rows)], run.measure)
    if drawn:
        cost = done.get("cost")
        line = tag("p", f"All rounds together: {cost_line(cost)}.", class_="soft") if cost else None
        parts.append(section("Learning curves", line, pair(*drawn)))
    if "choice" in run.record:
        parts.append(section("Choice of β", *choice(run)))
    if looked.levels:
        parts.append(section("Scores by known samples", *_scores(run, looked)))
    if looked.clients:
        parts.append(section("Clients", *clients(looked.clients, looked.step)))
    if looked.fits:
        parts.append(section("Fitted functions", fits(looked.fits, run.config)))
    if looked.tracked is not None and len(looked.tracked.memory):
        parts.append(section("Memory", memory(looked.tracked)))
    return parts


def _tenths(level: Level) -> list[float]:
    """The first, fifth and ninth decile of the tasks' scores."""
    return np.quantile(level.each, [0.1, 0.5, 0.9], method="inverted_cdf").tolist()


def known_lines(levels: Sequence[Level], name: str | None = None, style: int = 0) -> list[Series]:
    """Scores by known samples, a line for each group of tasks."""
    lines = []
    for i, who in enumerate(dict.fromkeys(level.who for level in levels)):
        mine = [level for level in levels if level.who == who]
        points = [(level.shots, float(level.each.mean())) for level in mine]
        band = [(low, high) for low, _, high in map(_tenths, mine)]
        lines.append(Series(name or who, points, style + i, band))
    return lines


def _scores(run: Trained, looked: Looked) -> list[Markup]:
    config, levels, what = run.config, looked.levels, unit_of(run.config)
    them = "clients" if looked.clients else "tasks"
    caption = f"Mean over {them}; the band contains all but the lowest and the highest tenth."
    pictures = [by_known(known_lines(levels), run.measure, what, caption)]
    each = {level.shots: level.each for level in levels if level.who != TOOK_PART}
    if not looked.clients and {0, config.shots} <= set(each):
        unit = what.replace("samples", "sample") if config.shots == 1 else what
        known = f"{config.shots} known {unit}"
        pictures.append(over_tasks(each[0], each[config.shots], run.measure, known))
    parts = [pair(*pictures), _score_table(run, levels, what)]
    if looked.alone is not None:
        together = each[config.shots].mean()
        parts.append(tag("p", (
            f"These scores predict all images of a task in one batch, and batch statistics make a "
            f"prediction depend on the others. With one image at a time, the accuracy with "
            f"{config.shots} known a class is {looked.alone:.1f}\u00a0% instead of "
            f"{together:.1f}\u00a0%."
        )))  # fmt: skip
    return parts


def _score_table(run: Trained, levels: Sequence[Level], what: str) -> Markup:
    several = len({level.who for level in levels}) > 1
    rows = []
    for level in levels:
        with np.errstate(invalid="ignore"):  # a task may have diverged
            error = np.std(level.each) / np.sqrt(len(level.each))
        mean = f"{level.each.mean():.4g} ± {error:.2g}"
        who = [level.who] if several else []
        rows.append([level.shots, *who, mean, *_tenths(level), len(level.each)])
    columns = [f"known {what}", *(["clients"] if several else [])]
    columns += [f"{run.measure.axis} ± standard error"]
    columns += ["10 % quantile", "median", "90 % quantile", "tasks"]
    steps = plural(run.config.test_steps, "step")
    caption = (
        f"The newest model after {steps} on the known {what}; 0 is the model before adaptation"
    )
    return table(caption, columns, rows)


def choice(run: Trained) -> list[Markup]:
    """The values of beta that were compared, and how they scored."""
    chosen = run.record["choice"]
    betas = chosen["rungs"][0]["beta"]
    text = (
        f"β = {chosen['beta']:.3g} was chosen of {len(betas)} values on {chosen['tasks']:,} "
        f"held-out tasks; the matching rule gives {chosen['rule']:.3g}, and 1 is no memory. "
        "Members were trained on the same draws, and the worst were stopped on the way."
    )
    rows = []
    for beta in betas:
        at = [dict(zip(rung["beta"], rung["score"], strict=True)) for rung in chosen["rungs"]]
        shown = [run.measure.say(scores[beta]) if beta in scores else "" for scores in at]
        rows.append([f"{beta:.3g}", *shown])
    columns = ["β", *(f"step {rung['step']:,}" for rung in chosen["rungs"])]
    caption = f"{run.measure.words.capitalize()} on held-out tasks, of the mean of the last models"
    return [tag("p", text), table(caption, columns, rows)]


def fits(some: Sequence[Fit], config: Config) -> Markup:
    """Unseen waves with the model before and after it adapts to some of their samples."""
    panels, data = [], []
    for fit in some:
        known, wave = f"its {config.shots} samples", f"A wave that is {fit.rank}"
        columns = {"the wave": fit.wave, "before": fit.before, "after": fit.after}
        series = []
        for (name, y), style in zip(columns.items(), (0, 1, 0), strict=True):
            pairs = zip(fit.x.tolist(), y.tolist(), strict=True)
            points = [point for point in pairs if np.isfinite(point[1])]
            series.append(Series(name, points, style, marks=False, quiet=name == "the wave"))
        series.append(Series(known, fit.samples, 3, line=False))
        label = (
            f"{wave} for the model, {known}, and the model before and after adapting to them: "
            f"error {fit.error:.3g}"
        )
        drawn = chart(series, Axis("x"), Axis("y"), label, wide=340, high=240)
        panels.append(tag("div", tag("h4", f"{wave}: error {fit.error:.3g}"), drawn))
        lines = zip(fit.x[::5], *(y[::5] for y in columns.values()), strict=True)
        shown = [[f"{value:.3f}" for value in row] for row in lines]
        data.append(table(f"The {fit.rank} wave", ["x", *columns], shown))
        samples = [[f"{x:.3f}", f"{y:.3f}"] for x, y in sorted(fit.samples)]
        data.append(table(f"The samples of the {fit.rank} wave", ["x", "y"], samples))
    caption = (
        f"Three of the {config.test_tasks:,} unseen waves: a tenth of them have a lower error than "
        f"the easy one, half than the middling one, nine tenths than the hard one. The model after "
        f"{config.test_steps} steps on the samples shown."
    )
    return figure(panels, caption, data, legend(series))


def memory(tracked: Tracked) -> Markup:
    """The tracking error of all tasks, and of each."""
    mean, start = float(tracked.memory.mean()), float(tracked.start.mean())
    data = "all of its data" if tracked.exact else "samples drawn for this page"
    head = (
        f"The tracking error is {mean:.3g}: the mean of |u − v|² over {len(tracked.memory):,} of "
        f"{tracked.tasks:,} tasks, where u is a task's memory and v is the newest model after it "
        f"adapts on {data}. For w, the model before it adapts, the mean of |w − v|² is "
        f"{start:.3g}. The memories are {'nearer' if mean < start else 'no nearer'} to v."
    )
    order = np.argsort(tracked.memory)
    values = [one[order].tolist() for one in (tracked.memory, tracked.start)]
    with_memory, without = map(by_rank, values)
    series = [
        Series("memory, |u − v|²", with_memory, 0, line=False),
        Series("no memory, |w − v|²", without, 1, line=False, hollow=True),
    ]
    y = Axis("squared distance", log=wide_range([b for _, b in with_memory + without]))
    x = Axis("tasks, the best tracked first, %", ticks=SHARES)
    pairs = zip(*values, strict=True)
    rows = thinned([[i, *both] for i, both in enumerate(pairs, start=1)], LISTED)
    listed = table("Tasks by tracking error", ["rank", "|u − v|²", "|w − v|²"], rows)
    label = (
        f"Tracking error of each task, mean {mean:.3g}, beside the distance of w, mean {start:.3g}"
    )
    caption = "Two points per task, sorted by tracking error."
    return pair(tag("p", head), picture(series, x, y, label, caption, listed))
