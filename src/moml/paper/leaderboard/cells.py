"""One cell of the leaderboard: a method on a data set and split, all its seeds side by side."""

import time
from typing import NamedTuple

import jax
import numpy as np

from moml.paper.leaderboard.data import Benchmark
from moml.paper.leaderboard.methods import ETA, ROWS, composed, numbers_of, printed
from moml.paper.leaderboard.scores import scorer
from moml.runs.client_scores import figures
from moml.training.compose import run_key
from moml.training.loop import TrainingInfo
from moml.training.rows import means_to_choose_by, result_row
from moml.training.sweep import Sweep, sweep
from moml.types import Record

TUNED = 99  # folded into a seed's key: the draws of fine-tuning
PROTOCOLS = ("pfllib", "strict")
ETAS = (ETA, 2 * ETA, 4 * ETA)  # tried under `strict`


class Cell(NamedTuple):
    """What is trained."""

    protocol: str
    dataset: str
    split: str
    method: str
    rounds: int
    seeds: int


class Outcome(NamedTuple):
    """A trained cell: its rows, and test accuracies [points, seeds] by model at the rounds `at`."""

    rows: list[Record]
    at: list[int]
    curves: dict[str, np.ndarray]


def grid_of(cell: Cell, numbers: dict[str, list[float]]) -> dict[str, list[float]]:
    """The settings of a cell: under `strict` three trainings for every method, no more for any.

    Three step sizes, or for a method with a constant of its own, three of that at eta.
    """
    if cell.protocol == "pfllib":
        return numbers
    constant = ROWS[cell.method].constant
    name, values = ("eta", ETAS) if constant is None else constant
    return numbers | {name: list(values)}


def run_cell(
    cell: Cell, bench: Benchmark, *, every: int = 10, progress: bool = False, **options: object
) -> Outcome:
    """Train a cell, score it every so many rounds, and pick rounds and settings."""
    began = time.monotonic()
    if cell.method == "feddbe":
        options = {"features": bench.net.features} | options
    chosen = composed(cell.method, bench.loss, **options)
    strict = cell.protocol == "strict"
    scores_of = scorer(chosen, bench, halves=strict)
    at, found = [], []

    def callback(info: TrainingInfo) -> None:
        seeds = np.arange(cell.seeds)
        keys = jax.vmap(lambda s: jax.random.fold_in(run_key(s), TUNED + info.step))(seeds)
        keys = keys[np.arange(len(info.loss)) % cell.seeds]
        at.append(info.step)
        found.append(jax.device_get(scores_of(info.carry.state, info.hyper, keys)))

    run = sweep(
        chosen, bench.loss, bench.net.init, bench.train, seeds=cell.seeds,
        grid=grid_of(cell, numbers_of(cell.method, chosen)), iterations=cell.rounds, chunk=every,
        callback=callback, progress=progress,
    )  # fmt: skip
    sizes = np.asarray(bench.test.index)
    parts = {
        part: {kind: np.stack([one[part][kind] for one in found]) for kind in found[0][part]}
        for part in found[0]
    }
    rows, curves = [], {}
    for kind, test in parts["test"].items():  # [points, members, clients]
        if cell.method == "local" and kind != "kept":  # no server trains
            continue
        chosen_by = parts["validation"][kind] if strict else test
        member, point = pick(overall(chosen_by, sizes), run.lost, cell.seeds, one_round=strict)
        mine = test[point, member]  # [seeds, clients]
        curves[kind] = overall(test, sizes)[:, member]
        rows += rows_of(cell, kind, run, mine, sizes, [at[p] for p in point], int(member[0]),
                        time.monotonic() - began)  # fmt: skip
    return Outcome(rows, at, curves)


def overall(accuracies: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Right answers of all clients over all test images, as PFLlib counts; clients come last."""
    return (accuracies * sizes).sum(axis=-1) / sizes.sum()


def pick(
    means: np.ndarray, lost: np.ndarray, seeds: int, *, one_round: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The member and the point of each seed that are reported, from accuracies [points, members].

    PFLlib takes every seed's best round; with `one_round` all seeds share setting and round.

    >>> means = np.array([[1.0, 2.0], [3.0, 1.5]])
    >>> pick(means, np.array([False, False]), 2, one_round=False)[1].tolist()
    [1, 0]
    """
    by_seed = means.reshape(len(means), -1, seeds)  # [points, settings, seeds]
    if not one_round:
        return np.arange(seeds), by_seed[:, 0].argmax(axis=0)
    shared = means_to_choose_by(by_seed, lost.reshape(1, -1, seeds))
    point, setting = np.unravel_index(shared.argmax(), shared.shape)
    return int(setting) * seeds + np.arange(seeds), np.full(seeds, point)


def rows_of(
    cell: Cell, kind: str, run: Sweep, mine: np.ndarray, sizes: np.ndarray, at: list[int],
    member: int, seconds: float,
) -> list[Record]:  # fmt: skip
    """The rows of one kind of model: accuracy over all images, and what clients' figures show."""
    used = {name: value for name, value in run.settings[member].items() if name != "seed"}
    setting: Record = {"split": cell.split, "model": kind, "rounds": cell.rounds, "at": at} | used
    other = figures(mine, mine)
    values = {"test_accuracy": overall(mine, sizes), "worst_decile": other["worst_decile"],
              "mean_of_clients": other["accuracy"], "spread": other["spread"]}  # fmt: skip
    rows = [
        result_row(
            table="leaderboard", dataset=cell.dataset, setting=setting, method=cell.method,
            protocol=cell.protocol, metric=metric, values=value, samples=run.samples,
            iterations=cell.rounds, seconds=seconds,
        )
        for metric, value in values.items()
    ]  # fmt: skip
    rows[0]["clients"] = mine.tolist()  # accuracies, one list a seed
    if kind != "tuned":
        rows[0]["paper_mean"] = printed(cell.method, cell.dataset, cell.split)
    return rows
