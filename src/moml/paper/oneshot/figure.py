"""Pictures of one-shot classification: an episode with its answers, and a test that learns."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from moml.paper.oneshot.table import Cell, Outcome, Plan
from moml.paper.oneshot.tasks import SPLIT, Problem, episode
from moml.report.figures import COLOURS, band, legend_below, panels, pyplot, save
from moml.training.sweep import Sweep
from moml.types import Batch

SHOWN = ("moml", "protonet-tuned", "moml-v1", "maml", "joint-tuned", "untrained")
GOOD, BAD = "#009e73", "#d55e00"


def title_of(cell: Cell) -> str:
    """What a table is about, and what a guess would score."""
    where = f"{cell.dataset}, images {cell.images}, {cell.setting.ways} ways"
    where += "" if cell.split == SPLIT else f", split {cell.split}"
    return f"One-shot, {where} (chance {100 / cell.setting.ways:g} %), protocol {cell.protocol}"


def oneshot_figures(outcomes: Sequence[Outcome], problem: Problem, folder: Path) -> list[Path]:
    """All pictures that these outcomes allow."""
    cell, pictures = outcomes[0].cell, []
    name = f"{cell.dataset}-{cell.images}" + ("" if cell.split == SPLIT else f"-{cell.split}")
    curves, others = {}, {}
    for one in outcomes:
        if one.cell.protocol != "released" and one.trained:
            others[one.cell.method] = one.trained
        elif one.cell.protocol == "released" and one.scores.shape[2] > 1:
            curves[one.cell.method] = one.scores.mean(axis=1)
    if curves:
        pictures.append(learned_in_the_test(curves, cell, folder / f"released-{name}"))
    chosen = [method for method in SHOWN if method in others][:3]
    if chosen:
        support, query = episode(problem.test, jax.random.key(2), jnp.zeros((), jnp.int32))
        predicted = {name: answers(*others[name], support, query, problem) for name in chosen}
        images = (np.asarray(support.x), np.asarray(query.x))
        pictures.append(one_episode(images, predicted, folder / f"episode-{name}"))
    return pictures


def answers(
    plan: Plan, run: Sweep, support: Batch, query: Batch, problem: Problem
) -> Int[np.ndarray, " queries"]:
    """The classes that seed 0 predicts for the queries of one episode, after adapting."""
    meta, hyper = jax.tree.map(lambda leaf: leaf[0], (run.meta, run.hyper))
    mine = plan.test.merge(meta, plan.test.apply(meta, support, hyper))
    return np.asarray(jnp.argmax(problem.net.predict(mine, query.x), axis=-1))


def learned_in_the_test(curves: Mapping[str, np.ndarray], cell: Cell, path: Path) -> Path:
    """Accuracy of the released test, episode by episode: a line a method."""
    figure, ((axes,),) = panels(1, 1, (7, 4.4))
    width = 5 if cell.setting.test >= 10 else 15
    for i, (label, seeds) in enumerate(curves.items()):
        smooth = np.stack([_smoothed(seed, width) for seed in seeds], axis=1)
        control = label == "untrained"
        colour = "black" if control else COLOURS.get(label, f"C{i}")
        line = {"linestyle": (0, (1, 2)), "zorder": 9, "linewidth": 2.2} if control else {}
        alpha = 0.12 if control or len(curves) < 4 else 0.0
        band(axes, list(enumerate(smooth, start=1)), colour, label, alpha=alpha, **line)
    chance = 100 / cell.setting.ways
    axes.axhline(chance, color="#999999", linewidth=1)
    axes.text(100, chance + 0.7, "a guess", color="#777777", fontsize=8, ha="right")
    axes.set(
        xlabel="episode of a test task, no reset in between", ylabel="accuracy, %", ylim=(0, None)
    )
    title = f"{cell.dataset}, the released test: what it scores is learned while it runs"
    axes.set_title(title)
    legend_below(figure, [axes])
    return save(figure, path)


def _smoothed(values: np.ndarray, width: int) -> np.ndarray:
    """The mean over neighbouring episodes, fewer at the ends; the first as it is."""
    reach = np.minimum(np.arange(len(values)), width // 2)
    reach = np.minimum(reach, reach[::-1])
    return np.array([values[i - r : i + r + 1].mean() for i, r in enumerate(reach)])


def one_episode(
    images: tuple[np.ndarray, np.ndarray], predicted: Mapping[str, np.ndarray], path: Path
) -> Path:
    """Support above, queries below it, then the class that each method predicts for them."""
    support, query = images
    ways, count = len(support), len(predicted)
    rows: list[tuple[str, np.ndarray, np.ndarray | None]]
    rows = [("shown", support, None), ("asked", query, None)]
    rows += [(label, support[answer], answer) for label, answer in predicted.items()]
    size = 0.62 if ways > 10 else 1.0
    figure, grid = pyplot().subplots(
        2 + count, ways, figsize=(size * ways + 1.6, size * (2 + count) + 0.75), squeeze=False
    )
    figure.subplots_adjust(left=1.5 / (size * ways + 1.6), right=0.995, top=0.87, bottom=0.02,
                           hspace=0.12, wspace=0.08)  # fmt: skip
    for row, (label, pictures, answer) in zip(grid, rows, strict=True):
        for i, (axes, picture) in enumerate(zip(row, pictures, strict=True)):
            grey = picture.shape[-1] == 1
            shown = picture[..., 0] if grey else np.clip(picture, 0, 1)
            axes.imshow(shown, cmap="gray_r" if grey else None)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            right = answer is not None and answer[i] == i
            colour, width = ("#bbbbbb", 0.8) if answer is None else (GOOD if right else BAD, 3.5)
            box = {"fill": False, "linewidth": width, "edgecolor": colour}  # `save` hides spines
            frame = pyplot().Rectangle((0, 0), 1, 1, transform=axes.transAxes, **box)
            axes.add_patch(frame)
        share = "" if answer is None else f"\n{np.sum(answer == np.arange(ways))} of {ways}"
        row[0].set_ylabel(label + share, rotation=0, ha="right", va="center", fontsize=9)
    figure.suptitle(
        "one episode of unseen classes; below, the class that each method answers: "
        "green right, orange wrong", fontsize=9,
    )  # fmt: skip
    return save(figure, path)
