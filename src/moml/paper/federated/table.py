"""The paper's third table: federated image classification, 50 clients, beside its controls."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from moml.algorithms.parts.schedule import constant
from moml.paper.federated.cells import Cell, compose, decays_twice, rounds_in, with_quirks
from moml.paper.federated.data import Drawn, Pool, Problem, drawn, half
from moml.paper.federated.protocols import ALPHA, BETA, ETA, GRIDS, TEST_STEPS, Protocol
from moml.paper.federated.score import Clients, Curves, reading, scorer
from moml.runs.client_scores import figures
from moml.runtime.account import cost
from moml.training.compose import init_key
from moml.training.sweep import mean_of_seeds, means_to_choose_by, sweep
from moml.types import Hyper, Meta

EVERY, POINTS = 50, 10  # rounds between two scores (released); scores of a run (the others)
Scores = dict[str, Curves]  # the test of a name -> all members' clients
Test = Callable[[Meta, Any, bool], Scores]  # models, fine-tuning rates, whether clients' own


@dataclass(frozen=True)
class Outcome:
    """A trained and tested cell."""

    cell: Cell
    settings: list[dict[str, Any]]  # of each seed's member that is reported
    lost: np.ndarray  # of these
    rounds: int
    stopped: int | None  # the round that was chosen, where one was
    steps: int | None  # of fine-tuning; None: the mean over all steps
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
    steps: int | None = None  # of fine-tuning; None: the mean over all steps

    def of(self, scores: list[Scores], test: str) -> Clients:
        """These members' clients in a test."""
        at = zip(self.points, self.members, strict=True)
        return reading(np.stack([scores[t][test][m] for t, m in at]), self.steps)


def run_cell(
    cell: Cell, problem: Problem, test: Test, *, seeds: int, budget: int, progress: bool
) -> Outcome:
    """Train a cell with all its settings and seeds at once, and score it on the way."""
    p, plain, count = cell.switches, compose(cell, problem.loss), rounds_in(cell, budget)
    began, scoring = time.monotonic(), 0.0
    own = cell.method == "local"
    at: list[int] = []
    scores: list[Scores] = []

    def score(done: int, meta: Meta, hyper: Hyper) -> None:
        nonlocal scoring
        start = time.monotonic()
        at.append(done)
        scores.append(test(meta, hyper.alpha, own))
        scoring += time.monotonic() - start

    every = EVERY if p.best_round else math.ceil(count / POINTS)
    run = sweep(
        with_quirks(plain, cell), problem.loss, problem.net.init, problem.train,
        seeds=seeds, grid=grid_of(cell), iterations=count * cell.h,
        schedule=decays_twice(max(1, count * cell.h)) if p.decays else constant,
        chunk=max(1, every), 
        callback=lambda info: score(info.step, info.meta, info.hyper), progress=progress,
    )  # fmt: skip
    if not count:
        score(0, run.meta, run.hyper)
    pick = picked(scores, run.lost, seeds, p)
    travels = cell.method not in ("untrained", "local")
    once = cost(plain, problem.net.init(init_key(0)))
    return Outcome(
        cell=cell,
        settings=[run.settings[member] for member in pick.members],
        lost=run.lost[pick.members],
        rounds=count,
        stopped=at[pick.points[0]] if p.tuned and count else None,
        steps=pick.steps,
        curve=[
            (done, reading(one["seen"][pick.members], pick.steps).after.mean(axis=1))
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
    """Tuned: one setting, round and number of steps for all seeds; else best round, or the last."""
    first, last = np.arange(seeds), np.full(seeds, len(scores) - 1)
    if p.tuned:
        found = np.stack([one["tuning"].mean(axis=1) for one in scores])  # [points, members, steps]
        found = np.moveaxis(found.reshape(len(scores), -1, seeds, found.shape[-1]), 2, -1)
        each = means_to_choose_by(found, lost.reshape(-1, 1, seeds))
        point, setting, step = np.unravel_index(np.argmax(each), each.shape)
        return Pick(setting * seeds + first, np.full(seeds, point), int(step))
    steps = None if p.mean_of_steps else TEST_STEPS
    means = np.stack([reading(one["seen"], steps).after.mean(axis=1) for one in scores])
    return Pick(first, np.nanargmax(means, axis=0) if p.best_round else last, steps)


def scores_of(problem: Problem, p: Protocol, seeds: int) -> Test:
    """Models and fine-tuning rates of all members -> how their clients fare, compiled once.

    Where models are the clients' own, those that never took part have none.
    """
    few = lambda rows, salt: drawn(rows, seeds, few=p.few_queries, salt=salt)
    given: dict[str, tuple[Pool, Drawn]] = {}
    if p.tuned:
        for salt, name in enumerate(("tuning", "seen")):
            given[name] = (problem.test, few(half(problem.test.rows, salt), salt + 1))
    else:
        given["seen"] = (problem.test, few(problem.test.rows, 2))
    if problem.unseen is not None:
        given["unseen"] = (problem.unseen, few(problem.unseen.rows, 0))
    programs = {
        (name, own): scorer(problem.net, problem.loss, pool, rows, p, steps=TEST_STEPS, own=own)
        for name, (pool, rows) in given.items()
        for own in (False, True)
        if not own or name != "unseen"
    }
    return lambda meta, rates, own: {
        name: program(meta, jnp.asarray(rates))
        for (name, kind), program in programs.items()
        if kind == own
    }


def metrics_of(outcome: Outcome) -> dict[str, Float[np.ndarray, " seeds"]]:
    """All figures of a cell, one number a seed."""
    metrics = figures(*outcome.seen)
    if outcome.unseen is not None:
        found = figures(*outcome.unseen)
        metrics |= {f"{name}_unseen": values for name, values in found.items()}
    return metrics


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    """Result rows, one a metric, in the one form that all tables share."""
    cell = outcome.cell
    axes: dict[str, Any] = {"h": cell.h, "clients": cell.clients, "k": cell.k}
    axes |= {"rounds": outcome.rounds, "split": cell.split}
    if outcome.stopped is not None:
        axes["stopped"] = outcome.stopped
    if cell.switches.tuned:
        axes["steps"] = outcome.steps
    used = {name: value for name, value in outcome.settings[0].items() if name != "seed"}
    setting = axes | used if outcome.rounds else axes | {"alpha": used["alpha"]}
    rows = []
    for name, values in metrics_of(outcome).items():
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
