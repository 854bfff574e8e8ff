"""One cell of the leaderboard: a method on a data set and split, all its seeds side by side."""

import time
from typing import NamedTuple

import jax
import numpy as np

from moml.paper.leaderboard.data import Benchmark, with_dropout
from moml.paper.leaderboard.methods import BATCH, ROWS, composed, printed, settings_of
from moml.paper.leaderboard.scores import scorer
from moml.runs.client_scores import figures
from moml.training.compose import run_key
from moml.training.loop import TrainingInfo
from moml.training.rows import means_to_choose_by, result_row
from moml.training.sweep import Sweep, sweep
from moml.types import Record

TUNED = 99  # folded into a seed's key: the draws of fine-tuning
PROTOCOLS = ("pfllib", "strict")
LATENCY = 8  # what a step costs on a GPU before any client, in clients


class Cell(NamedTuple):
    """What is trained: `settings` trainings with each seed; `new`: scored on new clients."""

    protocol: str
    dataset: str
    split: str
    method: str
    rounds: int
    seeds: int
    settings: int = 1
    new: bool = False


def clients_at_once(steps: np.ndarray, members: int) -> int:
    """How many clients run side by side, so that a round of unequal clients is short on a GPU.

    Slices of like size take as many steps as their largest client, and a step costs as much as
    `LATENCY` clients besides its own.

    >>> clients_at_once(np.array([60] * 5 + [10] * 15), members=3)
    5
    >>> clients_at_once(np.array([60] * 20), members=3)
    20
    """
    ordered, n = np.sort(steps), len(steps)
    longest = lambda size: ordered.reshape(-1, size).max(axis=1).sum()
    sizes = [size for size in range(n, 0, -1) if n % size == 0]
    return min(sizes, key=lambda size: longest(size) * (LATENCY + size * members))


def run_cell(
    cell: Cell, bench: Benchmark, *, every: int = 10, progress: bool = False, **options: object
) -> list[Record]:
    """Train a cell, score it every so many rounds, and pick rounds and settings.

    The first row of each model has the curve of its accuracies.
    """
    began = time.monotonic()
    if cell.method == "feddbe":
        options = {"features": bench.net.features} | options
    if ROWS[cell.method].dropout:
        bench = with_dropout(bench, ROWS[cell.method].dropout)
    members = cell.seeds * cell.settings
    if jax.default_backend() != "cpu":
        steps = np.asarray(bench.train.index) // BATCH
        options = {"at_once": clients_at_once(steps, members)} | options
    chosen = composed(cell.method, bench.loss, n=bench.train.n or 1, **options)
    strict = cell.protocol == "strict"
    scores_of = scorer(
        chosen, bench, epochs=ROWS[cell.method].epochs, halves=strict, all_models=strict,
        members=members,
    )  # fmt: skip
    at: list[int] = []
    found = []

    def callback(info: TrainingInfo) -> None:
        seeds = np.arange(cell.seeds)
        keys = jax.vmap(lambda s: jax.random.fold_in(run_key(s), TUNED + info.step))(seeds)
        keys = keys[np.arange(len(info.loss)) % cell.seeds]
        at.append(info.step)
        found.append(jax.device_get(scores_of(info.carry.state, info.hyper, keys)))

    run = sweep(
        chosen, bench.loss, bench.net.init, bench.train, seeds=cell.seeds,
        grid=settings_of(cell.method, chosen, cell.settings), iterations=cell.rounds, chunk=every,
        callback=callback, progress=progress,
    )  # fmt: skip
    sizes = np.asarray(bench.test.index)
    parts = {
        part: {kind: np.stack([one[part][kind] for one in found]) for kind in found[0][part]}
        for part in found[0]
    }
    rows = []
    for kind, test in parts["test"].items():  # [points, members, clients]
        if cell.method == "local" and (kind != "kept" or cell.new):  # no server trains
            continue
        chosen_by = parts["validation"][kind] if strict else test
        member, point = pick(overall(chosen_by, sizes), run.lost, cell.seeds, one_round=strict)
        mine = rows_of(cell, kind, run, test[point, member], sizes, [at[p] for p in point],
                       int(member[0]), time.monotonic() - began)  # fmt: skip
        curve = overall(test, sizes)[:, member]  # [points, seeds]
        mine[0]["curve"] = {"rounds": at, "accuracy": np.round(curve, 3).tolist()}
        if cell.settings > 1:
            both = overall(chosen_by, sizes), overall(test, sizes)
            mine[0]["tried"] = tried(run.settings, run.lost, *both, at)
        rows += mine
    return rows


def overall(accuracies: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Right answers of all clients over all test images, as PFLlib counts; clients come last."""
    return (accuracies * sizes).sum(axis=-1) / sizes.sum()


def pick(
    means: np.ndarray, lost: np.ndarray, seeds: int, *, one_round: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The member and the point of each seed that are reported, from accuracies [points, members].

    PFLlib takes every seed's best round, here of the best setting; with `one_round` all seeds share
    setting and round.

    >>> means = np.array([[1.0, 2.0], [3.0, 1.5]])
    >>> pick(means, np.array([False, False]), 2, one_round=False)[1].tolist()
    [1, 0]
    """
    by_seed = means.reshape(len(means), -1, seeds)  # [points, settings, seeds]
    lost = lost.reshape(1, -1, seeds)
    if one_round:
        shared = means_to_choose_by(by_seed, lost)
        point, setting = np.unravel_index(shared.argmax(), shared.shape)
        return int(setting) * seeds + np.arange(seeds), np.full(seeds, point)
    best = means_to_choose_by(by_seed.max(axis=0, keepdims=True), lost)[0]
    setting = best.argmax()
    return int(setting) * seeds + np.arange(seeds), by_seed[:, setting].argmax(axis=0)


def tried(
    settings: list[Record], lost: np.ndarray, chosen_by: np.ndarray, test: np.ndarray, at: list[int]
) -> list[Record]:
    """Every setting at its best round: the accuracy that chooses, and that on the test images.

    Accuracies come as [points, members], the seeds of a setting side by side. A setting that lost
    a seed has none.
    """
    rows = []
    seeds = 1 + max(int(setting["seed"]) for setting in settings)
    for first in range(0, len(settings), seeds):
        mine = slice(first, first + seeds)
        numbers = {k: v for k, v in settings[first].items() if k != "seed"}
        means = chosen_by[:, mine].mean(axis=1)
        point = int(means.argmax())
        scores = {"chosen_by": means[point], "test": test[point, mine].mean()}
        kept = {k: None if lost[mine].any() else round(float(v), 3) for k, v in scores.items()}
        rows.append(numbers | kept | {"round": at[point]})
    return rows


def rows_of(
    cell: Cell, kind: str, run: Sweep, mine: np.ndarray, sizes: np.ndarray, at: list[int],
    member: int, seconds: float,
) -> list[Record]:  # fmt: skip
    """The rows of one kind of model: accuracy over all images, and what clients' figures show."""
    used = {name: value for name, value in run.settings[member].items() if name != "seed"}
    setting: Record = {"split": cell.split, "model": kind, "rounds": cell.rounds,
                       "settings": cell.settings, "new": cell.new, "at": at} | used  # fmt: skip
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
    rows[0]["clients"] = np.round(mine, 3).tolist()  # accuracies, one list a seed
    own = "global" if cell.method in ("fedavg", "fedprox") else "kept"
    if kind == own or (kind == "tuned" and cell.method in ("fedbabu", "per-fedavg", "pfedme")):
        rows[0]["paper_mean"] = printed(cell.method, cell.dataset, cell.split)
    return rows
