"""Parts of a training run on the page: its clients, the functions it fits, its memory."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from moml.config.config import Config
from moml.report.page.charts import SHARES
from moml.report.page.html import Markup, pair, table, tag, thinned
from moml.report.page.svg import Axis, Point, Series, chart, figure, legend, picture, wide_range
from moml.report.terminal import FIGURES, NAMES, plural
from moml.runs.client_scores import Group, figures_of
from moml.runs.model_scores import Fit, Tracked

LISTED = 100  # clients or tasks in a table
POINTS = 400  # of a series in a chart


def _ranked(values: Float[np.ndarray, " n"], order: Int[np.ndarray, " n"]) -> list[Point]:
    """Points of the values in this order; x is the rank in percent."""
    at = 100 * (np.arange(len(order)) + 0.5) / len(order)
    return thinned(list(zip(at.tolist(), values[order].tolist(), strict=True)), POINTS)


def clients(groups: Sequence[Group], shots: int) -> list[Markup]:
    """Scores of groups of clients, and of each client, before and after it adapts."""
    columns = ["clients", "count", "before, %", "after, %", "worst tenth, %", "spread"]
    rows = [
        [NAMES[one.name], len(one.after), *(f"{figures_of(one)[n]:.1f}" for n in FIGURES.values())]
        for one in groups
    ]
    groups_table = table(
        f"Accuracy before and after adapting to {plural(shots, 'image')}", columns, rows
    )
    series, each = [], []
    for i, group in enumerate(groups):
        name, order = NAMES[group.name], np.argsort(group.after, kind="stable")
        before, after = _ranked(group.before, order), _ranked(group.after, order)
        series.append(Series(f"{name}, after", after, i, line=False))
        series.append(Series(f"{name}, before", before, i, line=False, hollow=True))
        each += [(group.after[j], group.before[j], f"{name}, {j}", group.images[j]) for j in order]
    each.sort(key=lambda one: one[0])
    worst = [[name, int(n), f"{b:.1f}", f"{a:.1f}"] for a, b, name, n in each[:LISTED]]
    cut = f"the worst {LISTED} of {len(each):,}" if len(each) > LISTED else "the worst first"
    data = table(f"Single clients, {cut}", ["client", "test images", *columns[2:4]], worst)
    gain = [f"{100 * (group.after > group.before).mean():.0f}\u00a0%" for group in groups]
    others = f" and {gain[1]} of those that never did" if len(gain) > 1 else ""
    improves = f"adapting improves {gain[0]} of the clients that took part{others}"
    caption = f"Two points per client, sorted by the accuracy after adapting; {improves}."
    label = f"Accuracy of each client before and after it adapts; {improves}"
    x = Axis("clients, the worst first, %", ticks=SHARES)
    return [groups_table, picture(series, x, Axis("accuracy, %"), label, caption, data)]


def fits(some: Sequence[Fit], config: Config) -> Markup:
    """Unseen waves with the model before and after it adapts to some of their samples."""
    panels, data = [], []
    for fit in some:
        known, wave = f"its {config.shots} samples", f"A wave that is {fit.rank}"
        columns = {"the wave": fit.wave, "before": fit.before, "after": fit.after}
        points = {
            name: [
                (a, b) for a, b in zip(fit.x.tolist(), y.tolist(), strict=True) if np.isfinite(b)
            ]
            for name, y in columns.items()
        }
        series = [
            Series("the wave", points["the wave"], quiet=True, marks=False),
            Series("before", points["before"], 1, marks=False),
            Series("after", points["after"], 0, marks=False),
            Series(known, fit.samples, 3, line=False),
        ]
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
    with_memory, without = _ranked(tracked.memory, order), _ranked(tracked.start, order)
    series = [
        Series("memory, |u − v|²", with_memory, 0, line=False),
        Series("no memory, |w − v|²", without, 1, line=False, hollow=True),
    ]
    y = Axis("squared distance", log=wide_range([b for _, b in with_memory + without]))
    x = Axis("tasks, the best tracked first, %", ticks=SHARES)
    pairs = zip(tracked.memory[order].tolist(), tracked.start[order].tolist(), strict=True)
    rows = thinned([[i, *both] for i, both in enumerate(pairs, start=1)], LISTED)
    listed = table("Tasks by tracking error", ["rank", "|u − v|²", "|w − v|²"], rows)
    label = (
        f"Tracking error of each task, mean {mean:.3g}, beside the distance of w, mean {start:.3g}"
    )
    caption = "Two points per task, sorted by tracking error."
    return pair(tag("p", head), picture(series, x, y, label, caption, listed))
