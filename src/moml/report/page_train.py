"""A training run on the page: what it was, its scores, curves, fits, clients and memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from moml.algorithms.recipes import RECIPES
from moml.report.client_tables import NAMES, cost_line
from moml.report.page_curves import Curve, Known, by_known, curves, tenths
from moml.report.page_html import (
    Markup,
    Table,
    figure,
    join,
    note,
    section,
    table,
    tag,
    thinned,
    tiles,
)
from moml.report.page_runs import Trained
from moml.report.page_scores import Fit, Level, Looked, Tracked
from moml.report.page_svg import Axis, Series, chart, legend
from moml.run.client_scores import Group, figures_of
from moml.run.config import Config
from moml.run.problems import Clients, Episodes, Sine, Synthetic

LISTED = 100  # clients in a table
POINTS = 400  # clients in a picture


def problem_in_words(config: Config) -> str:
    """What a run learned on."""
    match config.problem:
        case Sine() as p:
            noise = f" with noise {p.noise:g}" if p.noise else ""
            return f"{p.n:,} sine waves{noise}"
        case Synthetic() as p:
            return f"{p.n:,} tasks of Synthetic({p.a:g}, {p.b:g})"
        case Episodes() as p:
            tasks = "fresh tasks" if p.n is None else f"{p.n:,} tasks"
            return f"{tasks} of {p.ways} classes of {p.dataset}"
        case Clients() as p:
            return f"{p.n:,} clients of {p.dataset}, split {p.partition}"


def scored_in_words(run: Trained) -> str:
    """What its score is."""
    config, c = run.config, run.config
    each = " of each class" if isinstance(config.problem, Episodes) else ""
    many = lambda count, word: f"{count:,} {word}{'' if count == 1 else 's'}"
    after = f"after {many(c.test_steps, 'step')} on {many(c.shots, 'sample')}{each}"
    if isinstance(config.problem, Clients):
        return f"{run.measure.words} of the clients that took part, {after}"
    return f"{run.measure.words} on {many(c.test_tasks, 'unseen task')}, {after}"


def lead(run: Trained) -> Markup:
    """What was run, in a sentence or two."""
    config = run.config
    done = run.rows[-1] if run.rows else {"iterations": 0, "samples": 0}
    method = join([tag("code", config.method), f" ({RECIPES[config.method].summary})"])
    began = f" on {problem_in_words(config)}: {done['iterations']:,} iterations, seed {config.seed}."
    score = "" if run.score is None else f" Its last score is {run.measure.say(run.score)}: {scored_in_words(run)}."
    return tag("p", method, began, score, class_="lead")


def figures(run: Trained) -> list[tuple[str, str]]:
    """The figures that stand at the top."""
    done = run.rows[-1] if run.rows else None
    pairs = [(run.measure.words, run.measure.say(run.score))]
    pairs.append(("training loss, last", "–" if done is None else f"{done['loss']:.4g}"))
    pairs.append(("samples drawn", f"{done['samples']:,}" if done else "0"))
    pairs.append(("iterations", f"{done['iterations'] if done else 0:,}"))
    return pairs


def body(run: Trained, looked: Looked) -> list[Any]:
    """All sections but the settings."""
    parts: list[Any] = [lead(run), tiles(figures(run))]
    if looked.wrong:
        parts.append(note("Some scores could not be computed for this page: ", looked.wrong))
    drawn = curves([Curve(run.name, run.rows)], run.measure)
    if drawn:
        cost = run.rows[-1].get("cost")
        told = tag("p", f"All rounds together: {cost_line(cost)}.", class_="soft") if cost else None
        parts.append(section("Learning curves", join([told]), tag("div", *drawn, class_="pair")))
    if looked.levels:
        parts.append(section("Scores by known samples", *_scores(run, looked)))
    if looked.groups:
        parts.append(section("Clients", *_clients(looked.groups, run.config.shots)))
    if looked.fits:
        parts.append(section("Fitted functions", _fits(looked.fits, run.config)))
    if looked.tracked is not None and len(looked.tracked.memory):
        parts.append(section("Memory", *_memory(looked.tracked)))
    return parts


def known_of(levels: Sequence[Level], name: str | None = None, style: int = 0) -> list[Known]:
    """Levels as lines of a picture, one for each kind of task."""
    made = []
    for i, who in enumerate(dict.fromkeys(level.who for level in levels)):
        mine = [level for level in levels if level.who == who]
        ends = [tenths(level.each) for level in mine]
        made.append(
            Known(
                who if name is None else name,
                [level.shots for level in mine],
                [float(level.each.mean()) for level in mine],
                [low for low, _ in ends],
                [high for _, high in ends],
                style + i,
            )
        )
    return made


def _scores(run: Trained, looked: Looked) -> list[Markup]:
    config, levels = run.config, looked.levels
    per = "a class" if isinstance(config.problem, Episodes) else ""
    rows = [
        [level.shots, level.who, f"{level.each.mean():.4g} ± {_error(level.each):.2g}",
         *(float(q) for q in np.quantile(level.each, [0.1, 0.5, 0.9])), len(level.each)]
        for level in levels
    ]  # fmt: skip
    head = [f"known samples {per}".strip(), "of", f"{run.measure.axis} ± standard error"]
    head += ["tenth", "median", "nine tenths", "tasks"]
    parts = [table(Table(f"Newest model, {config.test_steps} steps; 0 is the model as it comes", head, rows))]
    caption = "Mean over tasks; the band holds all but the lowest and the highest tenth of them."
    parts.insert(0, by_known(known_of(levels), run.measure, f"samples {per}".strip(), caption))
    if looked.alone is not None:
        together = next(level for level in levels if level.shots == config.shots)
        parts.append(tag("p", (
            f"These scores ask about all images of a task together, and batch statistics let an "
            f"answer depend on the others. Asked one image at a time, the accuracy with "
            f"{config.shots} a class is {looked.alone:.1f} % instead of {together.each.mean():.1f} %."
        )))  # fmt: skip
    return [tag("div", parts[0], tag("div", *parts[1:]), class_="pair")]


def _error(each: Any) -> float:
    return float(np.std(each) / np.sqrt(len(each)))


def _clients(groups: Sequence[Group], shots: int) -> list[Markup]:
    columns = ["clients", "count", "before, %", "after, %", "worst tenth, %", "spread"]
    rows = []
    for group in groups:
        found = figures_of(group)
        names = ("accuracy_before", "test_accuracy", "worst_decile", "spread")
        rows.append([NAMES[group.name], len(group.after), *(f"{found[n]:.1f}" for n in names)])
    summary = table(Table(f"Accuracy before and after adapting to {shots} images", columns, rows))
    series, told = [], []
    for i, group in enumerate(groups):
        order = np.argsort(group.after, kind="stable")
        share = lambda place, n=len(order): 100 * (place + 0.5) / n
        for values, when in ((group.after, "after"), (group.before, "before")):
            points = [(share(place), float(values[j])) for place, j in enumerate(order)]
            series.append(
                Series(f"{NAMES[group.name]}, {when}", thinned(points, POINTS),
                       2 * i + (when == "before"), line=False)
            )  # fmt: skip
        told += [
            [f"{NAMES[group.name]}, {j}", int(group.images[j]), f"{group.before[j]:.1f}", f"{group.after[j]:.1f}"]
            for j in order
        ]
    told.sort(key=lambda row: float(row[-1]))
    cut = f"the worst {LISTED} of {len(told)}" if len(told) > LISTED else "the worst first"
    data = Table(f"Single clients, {cut}", ["client", "test images", "before, %", "after, %"], told[:LISTED])
    helped = [(g.after > g.before).mean() * 100 for g in groups]
    label = f"Accuracy of each client before and after it adapts; {helped[0]:.0f} % of those that took part gain"
    x = Axis("clients, the worst after adapting first, %", ticks=(0, 25, 50, 75, 100))
    caption = (
        f"Each client twice, ordered by what it scores after adapting: {helped[0]:.0f} % of those "
        f"that took part gain by it{f', and {helped[1]:.0f} % of the others' if len(helped) > 1 else ''}."
    )  # fmt: skip
    drawn = join([chart(series, x, Axis("accuracy, %"), label), legend(series)])
    return [tag("div", figure([drawn], caption, [data]), tag("div", summary), class_="pair")]


def _fits(fits: Sequence[Fit], config: Config) -> Markup:
    panels, data = [], []
    for fit in fits:
        pairs = lambda values, x=fit.x: list(zip(map(float, x), map(float, values), strict=True))
        series = [
            Series("the wave", pairs(fit.wave), quiet=True, marks=False),
            Series("before", pairs(fit.before), 1, marks=False),
            Series("after", pairs(fit.after), 0, marks=False),
            Series("its samples", fit.samples, 3, line=False),
        ]
        title = f"{fit.rank}: error {fit.error:.3g}"
        label = f"An unseen wave that is {fit.rank}, its {config.shots} samples, and the model before and after adapting: error {fit.error:.3g}"
        panels.append(tag("div", tag("h4", title), chart(series, Axis("x"), Axis("y"), label)))
        rows = [[f"{x:.1f}", f"{a:.3f}", f"{b:.3f}", f"{c:.3f}"]
                for x, a, b, c in zip(fit.x[::5], fit.wave[::5], fit.before[::5], fit.after[::5], strict=True)]  # fmt: skip
        data.append(Table(f"The {fit.rank} wave", ["x", "the wave", "before", "after"], rows))
        shown = [[f"{x:.2f}", f"{y:.3f}"] for x, y in sorted(fit.samples)]
        data.append(Table(f"The samples of the {fit.rank} wave", ["x", "y"], shown))
    caption = (
        f"Three of the {config.test_tasks:,} unseen waves: a tenth of them have a lower error than "
        f"the easy one, half than the middling one, nine tenths than the hard one. After: "
        f"{config.test_steps} steps on the {config.shots} samples shown."
    )
    return figure([*panels], caption, data, legend(series))


def _memory(tracked: Tracked) -> list[Markup]:
    mean, start = float(tracked.memory.mean()), float(tracked.start.mean())
    count = len(tracked.memory)
    words = "on all of its data" if tracked.exact else "on samples drawn for this page"
    better = "nearer than" if mean < start else "no nearer than"
    head = tag(
        "p",
        f"The tracking error is {mean:.3g}: the mean over {count:,} of {tracked.tasks:,} tasks of "
        f"|u − v|², the squared distance of a task's memory u from v, where the newest model "
        f"adapts to {words}. For w itself, without a memory, it is {start:.3g}; the memories are "
        f"{better} that.",
    )
    order = np.argsort(tracked.memory)
    share = lambda place: 100 * (place + 0.5) / count
    line = lambda values: thinned(
        [(share(place), float(values[j])) for place, j in enumerate(order)], POINTS
    )
    series = [
        Series("memory, |u − v|²", line(tracked.memory), 0, line=False),
        Series("no memory, |w − v|²", line(tracked.start), 1, line=False),
    ]
    values = [b for one in series for _, b in one.points]
    log = min(values) > 0 and max(values) > 8 * min(values)
    rows = [[place + 1, float(tracked.memory[j]), float(tracked.start[j])]
            for place, j in enumerate(order)]  # fmt: skip
    rows = thinned(rows, LISTED)
    data = Table("Tasks by their tracking error", ["rank", "|u − v|²", "|w − v|²"], rows)
    x = Axis("tasks, the best tracked first, %", ticks=(0, 25, 50, 75, 100))
    label = f"Tracking error of each task, mean {mean:.3g}, beside the distance of w, mean {start:.3g}"
    drawn = join([chart(series, x, Axis("squared distance", log=log), label), legend(series)])
    return [head, figure([drawn], "Each task twice, ordered by its tracking error.", [data])]
