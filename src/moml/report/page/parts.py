"""Parts of a training run on the page: its clients, the functions it fits, its memory."""

from collections.abc import Sequence

import numpy as np

from moml.config.config import Config
from moml.report.page.curves import picture, wide
from moml.report.page.html import Markup, Table, figure, table, tag, thinned
from moml.report.page.svg import Axis, Series, chart, legend
from moml.report.terminal.clients import NAMES
from moml.runs.client_scores import Group, figures_of
from moml.runs.model_scores import Fit, Tracked

LISTED = 100  # clients or tasks in a table
POINTS = 400  # in a picture
SHARES = (0, 25, 50, 75, 100)
FIGURES = ("accuracy_before", "test_accuracy", "worst_decile", "spread")


def _ranked(values: np.ndarray, order: np.ndarray) -> list[tuple[float, float]]:
    """Values in this order, against the share of those before."""
    at = 100 * (np.arange(len(order)) + 0.5) / len(order)
    return thinned([(float(a), float(values[j])) for a, j in zip(at, order, strict=True)], POINTS)


def clients(groups: Sequence[Group], shots: int) -> list[Markup]:
    """What groups of clients score, and each client, before and after it adapts."""
    columns = ["clients", "count", "before, %", "after, %", "worst tenth, %", "spread"]
    rows = [
        [NAMES[group.name], len(group.after), *(f"{figures_of(group)[n]:.1f}" for n in FIGURES)]
        for group in groups
    ]
    summary = table(Table(f"Accuracy before and after adapting to {shots} images", columns, rows))
    series, each = [], []
    for i, group in enumerate(groups):
        name, order = NAMES[group.name], np.argsort(group.after, kind="stable")
        series.append(Series(f"{name}, after", _ranked(group.after, order), i, line=False))
        before = _ranked(group.before, order)
        series.append(Series(f"{name}, before", before, i, line=False, hollow=True))
        each += [
            (group.after[j], group.before[j], f"{name}, {j}", int(group.images[j])) for j in order
        ]
    each.sort(key=lambda one: one[0])
    listed = [
        [name, n, f"{before:.1f}", f"{after:.1f}"] for after, before, name, n in each[:LISTED]
    ]
    cut = f"the worst {LISTED} of {len(each):,}" if len(each) > LISTED else "the worst first"
    data = Table(f"Single clients, {cut}", ["client", "test images", *columns[2:4]], listed)
    gain = [f"{100 * (group.after > group.before).mean():.0f}\u00a0%" for group in groups]
    others = f", and {gain[1]} of those that never did" if len(gain) > 1 else ""
    caption = (
        f"Each client twice, in the order of what it scores after adapting: {gain[0]} of the "
        f"clients that took part gain by it{others}."
    )
    label = f"Accuracy of each client before and after it adapts; {gain[0]} of the first gain by it"
    x = Axis("clients, the worst first, %", ticks=SHARES)
    return [
        summary,
        picture(series, x, Axis("accuracy, %"), label, caption, data),
    ]


def fits(some: Sequence[Fit], config: Config) -> Markup:
    """Unseen waves with the model before and after it adapts to some of their samples."""
    panels, data = [], []
    for fit in some:
        line = lambda values, x=fit.x: [
            (float(a), float(b)) for a, b in zip(x, values, strict=True) if np.isfinite(b)
        ]
        series = [
            Series("the wave", line(fit.wave), quiet=True, marks=False),
            Series("before", line(fit.before), 1, marks=False),
            Series("after", line(fit.after), 0, marks=False),
            Series(f"its {config.shots} samples", fit.samples, 3, line=False),
        ]
        label = (
            f"A wave that is {fit.rank} for the model, its {config.shots} samples, and the model "
            f"before and after adapting to them: error {fit.error:.3g}"
        )
        drawn = chart(series, Axis("x"), Axis("y"), label, wide=340, high=240)
        panels.append(
            tag("div", tag("h4", f"A wave that is {fit.rank}: error {fit.error:.3g}"), drawn)
        )
        columns = [fit.x[::5], fit.wave[::5], fit.before[::5], fit.after[::5]]
        rows = [[f"{value:.3f}" for value in row] for row in zip(*columns, strict=True)]
        data.append(Table(f"The {fit.rank} wave", ["x", "the wave", "before", "after"], rows))
        known = [[f"{x:.3f}", f"{y:.3f}"] for x, y in sorted(fit.samples)]
        data.append(Table(f"The samples of the {fit.rank} wave", ["x", "y"], known))
    caption = (
        f"Three of the {config.test_tasks:,} unseen waves: a tenth of them have a lower error than "
        f"the easy one, half than the middling one, nine tenths than the hard one. The model after "
        f"{config.test_steps} steps on the samples shown."
    )
    return figure(panels, caption, data, legend(series))


def memory(tracked: Tracked) -> list[Markup]:
    """The tracking error of all tasks, and of each."""
    mean, start = float(tracked.memory.mean()), float(tracked.start.mean())
    data = "all of its data" if tracked.exact else "samples drawn for this page"
    verdict = "The memories are nearer." if mean < start else "The memories are no nearer."
    head = (
        f"The tracking error is {mean:.3g}: the mean of |u − v|² over {len(tracked.memory):,} of "
        f"{tracked.tasks:,} tasks, where u is a task's memory and v is where the newest model "
        f"adapts to on {data}. Without a memory there is w, the model itself, with a mean "
        f"|w − v|² of {start:.3g}. {verdict}"
    )
    order = np.argsort(tracked.memory)
    series = [
        Series("memory, |u − v|²", _ranked(tracked.memory, order), 0, line=False),
        Series("no memory, |w − v|²", _ranked(tracked.start, order), 1, line=False, hollow=True),
    ]
    y = Axis("squared distance", log=wide([b for one in series for _, b in one.points]))
    rows = [[i + 1, float(tracked.memory[j]), float(tracked.start[j])] for i, j in enumerate(order)]
    listed = Table(
        "Tasks by tracking error", ["rank", "|u − v|²", "|w − v|²"], thinned(rows, LISTED)
    )
    x = Axis("tasks, the best tracked first, %", ticks=SHARES)
    label = (
        f"Tracking error of each task, mean {mean:.3g}, beside the distance of w, mean {start:.3g}"
    )
    caption = "Each task twice, in the order of its tracking error."
    drawn = picture(series, x, y, label, caption, listed)
    return [tag("div", tag("p", head), drawn, class_="pair")]
