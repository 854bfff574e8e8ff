"""A training run on the page: what it was, its curves and its scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from moml.config.config import Config
from moml.config.problems import Clients, Episodes, Sine, Synthetic
from moml.config.problems import Table as Rows
from moml.methods import summary
from moml.report.page.curves import Curve, curves
from moml.report.page.html import Markup, Table, join, note, section, table, tag, tiles
from moml.report.page.known import Known, by_known, over_tasks, tenths
from moml.report.page.parts import clients, fits, memory
from moml.report.page.runs import Row, Trained
from moml.report.terminal.clients import NAMES, cost_line, size
from moml.runs.client_scores import figures_of
from moml.runs.model_scores import TOOK_PART, Level, Looked

SETS = {"omniglot": "Omniglot", "mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


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
            return f"{tasks} of {p.ways} classes of {SETS[p.dataset]}"
        case Clients() as p:
            return f"{p.n:,} clients of {SETS[p.dataset]}, split {p.partition}"
        case Rows() as p:
            return f"{p.n:,} tasks of rows of {p.path}"


def samples_in_words(config: Config) -> str:
    """What shots are."""
    return "samples a class" if isinstance(config.problem, Episodes) else "samples"


def scored_in_words(run: Trained) -> str:
    """What its score is."""
    config, c = run.config, run.config
    each = " of each class" if isinstance(config.problem, Episodes) else ""
    many = lambda count, word: f"{count:,} {word}{'' if count == 1 else 's'}"
    after = f"after {many(c.test_steps, 'step')} on {many(c.shots, 'sample')}{each}"
    if isinstance(config.problem, Clients):
        return f"{run.measure.words} of the clients that took part, {after}"
    if isinstance(config.problem, Rows):
        return f"{run.measure.words} {run.measure.of}, {after}"
    return f"{run.measure.words} on {many(c.test_tasks, 'unseen task')}, {after}"


def lead(run: Trained) -> Markup:
    """What was run, in a sentence or two."""
    config = run.config
    done = run.rows[-1] if run.rows else {"iterations": 0, "samples": 0}
    method = join([tag("code", config.method), f", {summary(config.method)}"])
    began = (
        f"; on {problem_in_words(config)}, {done['iterations']:,} iterations, seed {config.seed}."
    )
    score = (
        ""
        if run.score is None
        else f" Its last score is {run.measure.say(run.score)}: {scored_in_words(run)}."
    )
    return tag("p", method, began, score, class_="lead")


def figures(run: Trained, looked: Looked) -> list[tuple[str, str]]:
    """The figures that stand at the top."""
    nothing: Row = {"iterations": 0, "samples": 0, "loss": None}
    done = run.rows[-1] if run.rows else nothing
    loss = "–" if done["loss"] is None else f"{done['loss']:.4g}"
    pairs = [(f"{run.measure.words}, last score", run.measure.say(run.score))]
    for group in looked.groups:
        found = figures_of(group)
        if group.name == "took-part":
            pairs.append(("worst tenth of the clients", run.measure.say(found["worst_decile"])))
        else:
            pairs.append(
                (f"clients that {NAMES[group.name]}", run.measure.say(found["test_accuracy"]))
            )
    if "cost" in done:
        pairs.append(("sent, both ways", size(done["cost"]["down"] + done["cost"]["up"])))
    pairs += [("training loss, last", loss), ("samples drawn", f"{done['samples']:,}")]
    pairs.append(("iterations", f"{done['iterations']:,}"))
    return pairs[:4]


def body(run: Trained, looked: Looked) -> list[Any]:
    """All sections but the settings."""
    parts: list[Any] = [lead(run), tiles(figures(run, looked))]
    if looked.wrong:
        parts.append(note("Not all of this page could be computed: ", looked.wrong))
    drawn = curves([Curve(run.name, run.rows)], run.measure)
    if drawn:
        cost = run.rows[-1].get("cost")
        told = tag("p", f"All rounds together: {cost_line(cost)}.", class_="soft") if cost else None
        parts.append(section("Learning curves", join([told]), tag("div", *drawn, class_="pair")))
    if looked.levels:
        parts.append(section("Scores by known samples", *_scores(run, looked)))
    if looked.groups:
        parts.append(section("Clients", *clients(looked.groups, run.config.shots)))
    if looked.fits:
        parts.append(section("Fitted functions", fits(looked.fits, run.config)))
    if looked.tracked is not None and len(looked.tracked.memory):
        parts.append(section("Memory", *memory(looked.tracked)))
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
    what = samples_in_words(config)
    them = "clients" if looked.groups else "tasks"
    caption = f"Mean over {them}; the band holds all but the lowest and the highest tenth of them."
    pictures = [by_known(known_of(levels), run.measure, what, caption)]
    each = {level.shots: level.each for level in levels if level.who != TOOK_PART}
    if not looked.groups and {0, config.shots} <= set(each):
        known = what.replace("samples", "sample") if config.shots == 1 else what
        both = each[0], each[config.shots]
        pictures.append(over_tasks(*both, run.measure, f"{config.shots} known {known}"))
    parts = [tag("div", *pictures, class_="pair"), table(_score_table(run, levels, what))]
    if looked.alone is not None:
        together = each[config.shots].mean()
        parts.append(tag("p", (
            f"These scores ask about all images of a task together, and batch statistics let an "
            f"answer depend on the others. Asked one image at a time, the accuracy with "
            f"{config.shots} known a class is {looked.alone:.1f}\u00a0% instead of "
            f"{together:.1f}\u00a0%."
        )))  # fmt: skip
    return parts


def _score_table(run: Trained, levels: Sequence[Level], what: str) -> Table:
    several = len({level.who for level in levels}) > 1
    rows = []
    for level in levels:
        with np.errstate(invalid="ignore"):  # a task may have diverged
            error = np.std(level.each) / np.sqrt(len(level.each))
        quantiles = np.quantile(level.each, [0.1, 0.5, 0.9], method="inverted_cdf").tolist()
        mean = f"{level.each.mean():.4g} ± {error:.2g}"
        who = [level.who] if several else []
        rows.append([level.shots, *who, mean, *quantiles, len(level.each)])
    head = [
        f"known {what}",
        *(["clients"] if several else []),
        f"{run.measure.axis} ± standard error",
    ]
    steps = "1 step" if run.config.test_steps == 1 else f"{run.config.test_steps} steps"
    caption = f"The newest model after {steps} on so many {what}; 0 is the model as it comes"
    return Table(caption, [*head, "a tenth is below", "median", "a tenth is above", "tasks"], rows)
