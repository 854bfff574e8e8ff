"""The paper's third table: federated image classification, 50 clients, beside its controls."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from moml.algorithms.schedule import constant
from moml.paper.federated_cells import Cell, compose, decays_twice, rounds_in, with_quirks
from moml.paper.federated_data import Drawn, Pool, Problem, drawn, half
from moml.paper.federated_protocols import ALPHA, BETA, ETA, GRIDS, TEST_STEPS, Protocol
from moml.paper.federated_score import Clients, metrics_of, reading, scorer
from moml.run.sweep import mean_of_seeds, sweep
from moml.run.train import init_key
from moml.runtime.account import cost
from moml.types import Hyper, Meta

EVERY, POINTS = 50, 10  # rounds between two scores (released); scores of a run (the others)
Scores = dict[str, Clients]  # the test of a name -> all members' clients


@dataclass(frozen=True)
class Outcome:
    """A trained and tested cell."""

    cell: Cell
    settings: list[dict[str, Any]]  # of each seed's member that is reported
    lost: np.ndarray  # of these
    rounds: int
    stopped: int | None  # the round that was chosen, where one was
    curve: list[tuple[int, np.ndarray]]  # rounds, accuracy of each seed
    seen: Clients  # at the round that the protocol reports
    unseen: Clients | None
    bytes_a_round: int
    samples: int
    seconds: float  # training and its compilation, scoring not


class Pick(NamedTuple):
    """What is reported of each seed: a member of the sweep, at one of its scores."""

    members: Int[np.ndarray, " seeds"]
    points: Int[np.ndarray, " seeds"]

    def of(self, scores: list[Scores], test: str) -> Clients:
        """These members' clients in a test."""
        at = list(zip(self.points, self.members, strict=True))
        get = lambda field: np.stack([getattr(scores[t][test], field)[m] for t, m in at])
        return Clients(get("before"), get("after"))


def run_cell(cell: Cell, problem: Problem, *, seeds: int, budget: int, progress: bool) -> Outcome:
    """Train a cell with all its settings and seeds at once, and score it on the way."""
    p, plain, count = cell.switches, compose(cell, problem.loss), rounds_in(cell, budget)
    began, scoring = time.monotonic(), 0.0
    score = _tests(cell, problem, seeds)
    at: list[int] = []
    scores: list[Scores] = []

    def on_chunk(done: int, meta: Meta, hyper: Hyper) -> None:
        nonlocal scoring
        start = time.monotonic()
        at.append(done)
        scores.append(score(meta, hyper.alpha))
        scoring += time.monotonic() - start

    every = EVERY if p.best_round else math.ceil(count / POINTS)
    run = sweep(
        with_quirks(plain, cell), problem.loss, problem.net.init, problem.train,
        seeds=seeds, grid=grid_of(cell), iterations=count * cell.h,
        schedule=decays_twice(max(1, count * cell.h)) if p.decays else constant,
        chunk=max(1, every), on_chunk=on_chunk, progress=progress,
    )  # fmt: skip
    if not count:
        on_chunk(0, run.meta, run.hyper)
    pick = picked(scores, run.lost, seeds, p)
    travels = cell.method not in ("untrained", "local")
    once = cost(plain, problem.net.init(init_key(0)))
    return Outcome(
        cell=cell,
        settings=[run.settings[member] for member in pick.members],
        lost=run.lost[pick.members],
        rounds=count,
        stopped=at[pick.points[0]] if p.tuned and count else None,
        curve=[
            (done, one["seen"].after.mean(axis=1)[pick.members])
            for done, one in zip(at, scores, strict=True)
        ],
        seen=pick.of(scores, "seen"),
        unseen=pick.of(scores, "unseen") if "unseen" in scores[0] else None,
        bytes_a_round=int(once.down + once.up) if travels else 0,
        samples=run.samples,
        seconds=time.monotonic() - began - scoring,
    )


def grid_of(cell: Cell) -> dict[str, list[float]]:
    """Step sizes: the released code's, or all that are to be tried."""
    memory = cell.method.startswith("localmoml")
    if cell.switches.tuned:
        return {name: list(values) for name, values in GRIDS[cell.method].items()}
    return {"alpha": [ALPHA], "eta": [ETA]} | ({"beta": [BETA]} if memory else {})


def picked(scores: list[Scores], lost: np.ndarray, seeds: int, p: Protocol) -> Pick:
    """Tuned: one setting and round for all seeds; else each seed's best round, or the last."""
    means = lambda test: np.stack([one[test].after.mean(axis=1) for one in scores])
    first = np.arange(seeds)
    if p.tuned:
        found = np.where(lost, -np.inf, means("tuning"))
        each = found.reshape(len(scores), -1, seeds).mean(axis=2)
        point, setting = np.unravel_index(np.argmax(each), each.shape)
        return Pick(setting * seeds + first, np.full(seeds, point))
    last = np.full(seeds, len(scores) - 1)
    return Pick(first, np.nanargmax(means("seen"), axis=0) if p.best_round else last)


def _tests(cell: Cell, problem: Problem, seeds: int) -> Callable[[Meta, Any], Scores]:
    """Models and fine-tuning rates of all members -> their clients in each test."""
    p, own = cell.switches, cell.method == "local"
    given: dict[str, tuple[Pool, Drawn]] = {}
    few = lambda rows, salt: drawn(rows, seeds, few=p.few_queries, salt=salt)
    if p.tuned:
        for salt, name in enumerate(("tuning", "seen")):
            given[name] = (problem.test, few(half(problem.test.rows, salt), salt + 1))
    else:
        given["seen"] = (problem.test, few(problem.test.rows, 2))
    if problem.unseen is not None and not own:
        given["unseen"] = (problem.unseen, few(problem.unseen.rows, 0))
    programs = {
        name: scorer(problem.net, problem.loss, pool, rows, p, steps=TEST_STEPS, own=own)
        for name, (pool, rows) in given.items()
    }
    read = lambda curves: reading(curves, p.mean_of_steps)
    return lambda meta, rates: {
        name: read(program(meta, jnp.asarray(rates))) for name, program in programs.items()
    }


def metrics_of_outcome(outcome: Outcome) -> dict[str, Float[np.ndarray, " seeds"]]:
    """All figures of a cell, one number a seed."""
    metrics = metrics_of(outcome.seen)
    if outcome.unseen is not None:
        found = metrics_of(outcome.unseen)
        metrics |= {f"{name}_unseen": values for name, values in found.items()}
    return metrics


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    """Result rows, one a metric, in the one form that all tables share."""
    cell = outcome.cell
    axes: dict[str, Any] = {"h": cell.h, "clients": cell.clients, "k": cell.k}
    axes["rounds"] = outcome.rounds
    if outcome.stopped is not None:
        axes["stopped"] = outcome.stopped
    used = {name: value for name, value in outcome.settings[0].items() if name != "seed"}
    setting = axes | used if outcome.rounds else axes | {"alpha": used["alpha"]}
    rows = []
    for name, values in metrics_of_outcome(outcome).items():
        lost = outcome.lost | ~np.isfinite(values)
        mean, std = mean_of_seeds(values, lost)
        printed = cell.printed if name == "accuracy" else (None, None)
        rows.append(
            {
                "table": "federated",
                "dataset": cell.dataset,
                "setting": setting,
                "method": cell.method,
                "protocol": cell.protocol,
                "metric": name,
                "mean": mean,
                "std": std,
                "seeds": len(values),
                "lost": int(lost.sum()),
                "paper_mean": printed[0],
                "paper_std": printed[1],
                "samples": outcome.samples,
                "iterations": outcome.rounds * cell.h,
                "seconds": round(outcome.seconds, 2),
            }
        )
    return rows
