"""The paper's third table: federated image classification, 50 clients; its rows and its picture."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from moml.algorithms.parts.schedule import constant
from moml.paper.cells import paper_row, train
from moml.paper.federated import cells
from moml.paper.federated.cells import CONTROLS, METHODS, SPLIT, TEST_STEPS, Cell, Protocol
from moml.paper.federated.data import Clients, Problem, Scores, Test, reading
from moml.paper.search import best_first
from moml.report.figures import PALETTE, Curve, band, legend_below, panels, save
from moml.report.terminal import NARROW, mean_std, number, print_table
from moml.runs.client_scores import figures
from moml.runtime.account import cost
from moml.training.compose import init_key
from moml.types import Record

EVERY, POINTS = 50, 10  # rounds between two scores (released); scores of a run (the others)


class Outcome(NamedTuple):
    """A trained and tested cell."""

    cell: Cell
    rows: list[Record]  # one a metric, the accuracy first
    curve: Curve  # rounds, accuracy of each seed
    bytes_a_round: int


class Pick(NamedTuple):
    """What is reported of each seed: a member of the sweep, at one of its scores."""

    members: Int[np.ndarray, " seeds"]
    points: Int[np.ndarray, " seeds"]
    steps: int | None = None  # of fine-tuning; None: the mean over all steps

    def of(self, scores: Sequence[Scores], test: str) -> Clients:
        """These members' clients in a test."""
        at = zip(self.points, self.members, strict=True)
        return reading(np.stack([scores[t][test][m] for t, m in at]), self.steps)


def run_cell(
    cell: Cell, problem: Problem, test: Test, *, seeds: int, budget: int, progress: bool
) -> Outcome:
    """Train a cell with all its settings and seeds at once, and score it on the way."""
    p, plain = cell.switches, cells.compose(cell, problem.loss)
    count = cells.rounds_in(cell, budget)
    own = cell.method == "local"
    done = train(
        cells.with_quirks(plain, cell), problem.loss, problem.net.init, problem.train,
        seeds=seeds, grid=cells.grid_of(cell), iterations=count * cell.h,
        schedule=cells.decays_twice(max(1, count * cell.h)) if p.decays else constant,
        chunk=max(1, EVERY if p.best_round else math.ceil(count / POINTS)),
        score=lambda meta, hyper: test(meta, hyper.alpha, own), progress=progress,
    )  # fmt: skip
    run = done.run
    at, scores = zip(*done.curve or [(0, test(run.meta, run.hyper.alpha, own))], strict=True)
    pick = picked(scores, run.lost, seeds, p)
    used = {name: x for name, x in run.settings[pick.members[0]].items() if name != "seed"}
    setting: Record = {"h": cell.h, "clients": cell.clients, "k": cell.k}
    setting |= {"rounds": count, "split": cell.split}
    setting |= {"stopped": at[pick.points[0]]} if p.stops and count else {}
    setting |= {"steps": pick.steps} if p.stops else {}
    setting |= used if count else {"alpha": used["alpha"]}
    metrics = figures(*pick.of(scores, "seen"))
    if "unseen" in scores[0]:
        unseen = figures(*pick.of(scores, "unseen"))
        metrics |= {f"{name}_unseen": values for name, values in unseen.items()}
    rows = [
        paper_row(
            table="federated", dataset=cell.dataset, setting=setting, method=cell.method,
            protocol=cell.protocol, metric=name, values=values, lost=run.lost[pick.members],
            samples=run.samples, iterations=count * cell.h, seconds=done.seconds,
        )
        for name, values in metrics.items()
    ]  # fmt: skip
    after = lambda one: reading(one["seen"][pick.members], pick.steps).after.mean(axis=1)
    curve = [(done, after(one)) for done, one in zip(at, scores, strict=True)]
    once = cost(plain, problem.net.init(init_key(0)))
    travels = cell.method not in ("untrained", "local")
    return Outcome(cell, rows, curve, int(once.down + once.up) if travels else 0)


def picked(scores: Sequence[Scores], lost: np.ndarray, seeds: int, p: Protocol) -> Pick:
    """What is reported, the same for all seeds but for `best_round`.

    Tuned: one setting; with `stops` one round and number of steps too, else the last and all steps.
    """
    first, last = np.arange(seeds), np.full(seeds, len(scores) - 1)
    if p.tuned and not p.stops:
        found = scores[-1]["tuning"].mean(axis=1)[:, TEST_STEPS].reshape(-1, seeds)
        chosen = best_first(found, lost.reshape(-1, seeds))[0]
        return Pick(chosen * seeds + first, last, TEST_STEPS)
    if p.tuned:
        found = np.stack([one["tuning"].mean(axis=1) for one in scores])  # [points, members, steps]
        found = np.moveaxis(found.reshape(len(scores), -1, seeds, found.shape[-1]), 2, -1)
        gone = np.broadcast_to(lost.reshape(-1, 1, seeds), found.shape)
        best = best_first(found.reshape(-1, seeds), gone.reshape(-1, seeds))[0]
        point, setting, step = np.unravel_index(best, found.shape[:-1])
        return Pick(setting * seeds + first, np.full(seeds, point), int(step))
    steps = None if p.mean_of_steps else TEST_STEPS
    means = np.stack([reading(one["seen"], steps).after.mean(axis=1) for one in scores])
    return Pick(first, np.nanargmax(means, axis=0) if p.best_round else last, steps)


NAMES = ("per-fedavg", "localmoml", "pfedme", "fedavg", "localmoml-carried")
COLOURS = dict(zip(NAMES, PALETTE, strict=False)) | {"untrained": "#777777", "local": "#aaaaaa"}
EXTRA = {  # metrics beside the accuracy, as the table calls them
    "accuracy_before": "before", "worst_decile": "worst", "spread": "spread",
    "accuracy_unseen": "unseen",
}  # fmt: skip
AXES = ("k", "h", "clients")


def cell_of(row: Record) -> tuple[int, ...]:
    """The cell of a row; sorting by it gives the table's order."""
    return (*(row["setting"][name] for name in AXES), (CONTROLS + METHODS).index(row["method"]))


def in_order(rows: Sequence[Record]) -> list[Record]:
    """Rows of several runs in the table's order; of a cell that was run twice, the later one."""
    last = {(*cell_of(row), row["metric"]): row for row in rows}
    return [last[key] for key in sorted(last)]


def print_federated(rows: Sequence[Record]) -> None:
    """One line a cell: ours, the paper's, and what the clients' spread hides."""
    first = rows[0]
    most = max(row["setting"]["rounds"] for row in rows)
    split = first["setting"]["split"]
    other = "" if split == SPLIT else f" of split {split}"
    title = (
        f"Federated, {first['dataset']}, protocol {first['protocol']}, up to {most:,} rounds, "
        f"{first['seeds']} seeds{other}; accuracy in percent"
    )
    extra = [name for name in EXTRA if any(row["metric"] == name for row in rows)]
    shared: dict[str, tuple[str, ...]] = {"K H B": AXES, "α η β": ("alpha", "eta", "beta")}
    if any("stopped" in row["setting"] for row in rows):
        shared["stop steps"] = ("stopped", "steps")
    mean = {(cell_of(row), row["metric"]): number(row["mean"], ".1f") for row in rows}

    def line(row: Record) -> list[str]:
        cell, setting = cell_of(row), row["setting"]
        lost = f"{mean[cell, 'accuracy']}, {row['lost']} lost"
        return [
            row["method"],
            *(" ".join(number(setting.get(n), "g") for n in names) for names in shared.values()),
            lost if row["lost"] else mean_std(row["mean"], row["std"], ".1f"),
            mean_std(row["paper_mean"], row["paper_std"], ".1f"),
            *(mean.get((cell, name), "-") for name in extra),
        ]

    columns = ("method", *shared, "ours", "printed", *(EXTRA[name] for name in extra))
    lines = [line(row) for row in rows if row["metric"] == "accuracy"]
    print_table(title, columns, lines, no_wrap=columns, **NARROW)


def accuracy_curves(outcomes: Sequence[Outcome], path: Path) -> Path:
    """Above against rounds, below against bytes: a column an H and B, a band over seeds."""
    by_panel: dict[tuple[int, ...], list[Outcome]] = {}
    for one in outcomes:
        by_panel.setdefault((one.cell.k, one.cell.h, one.cell.clients), []).append(one)
    figure, grid = panels(2, len(by_panel), (4.6 * len(by_panel) + 1, 6.6), sharey=True)
    for column, ((k, h, clients), mine) in zip(grid.T, by_panel.items(), strict=True):
        for one in mine:
            colour, label = COLOURS[one.cell.method], one.cell.method
            mark = "o" if len(one.curve) == 1 else ""  # a line of one point would not be seen
            for axes, scale in zip(column, (1.0, one.bytes_a_round / 1e6), strict=True):
                if one.bytes_a_round:
                    scaled = [(done * scale, values) for done, values in one.curve]
                    band(axes, scaled, colour, label, marker=mark)
                else:  # nothing is sent: a level
                    axes.axhline(one.rows[0]["mean"], color=colour, linestyle=":", label=label)
        column[0].set_title(f"K = {k}, H = {h}, {clients} clients a round")
        column[0].set(xlabel="rounds")
        column[1].set(xlabel="megabytes over the network, both ways")
    for row in grid:
        row[0].set_ylabel("accuracy, %")
    legend_below(figure, grid.flat)
    cell = outcomes[0].cell
    figure.suptitle(f"{cell.dataset}, protocol {cell.protocol}; bands: all seeds")
    return save(figure, path)
