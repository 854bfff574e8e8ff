"""The paper's third table: federated image classification, 50 clients, beside its controls."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from moml.algorithms.parts.schedule import constant
from moml.paper.cells import Curve, train
from moml.paper.federated import cells
from moml.paper.federated.cells import TEST_STEPS, Cell, Protocol
from moml.paper.federated.data import (
    Clients,
    Curves,
    Pool,
    Problem,
    Rates,
    Rows,
    drawn,
    half,
    reading,
    scorer,
)
from moml.paper.search import best_first
from moml.runs.client_scores import figures
from moml.runtime.account import cost
from moml.training.compose import init_key
from moml.training.rows import result_row
from moml.types import Meta, Record

EVERY, POINTS = 50, 10  # rounds between two scores (released); scores of a run (the others)
Scores = dict[str, Curves]  # the test of a name -> all members' clients
# models, fine-tuning rates, whether each client has its own model -> scores
Test = Callable[[Meta, Rates, bool], Scores]


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
    setting |= {"stopped": at[pick.points[0]]} if p.tuned and count else {}
    setting |= {"steps": pick.steps} if p.tuned else {}
    setting |= used if count else {"alpha": used["alpha"]}
    metrics = figures(*pick.of(scores, "seen"))
    if "unseen" in scores[0]:
        unseen = figures(*pick.of(scores, "unseen"))
        metrics |= {f"{name}_unseen": values for name, values in unseen.items()}
    rows = [
        result_row(
            table="federated", dataset=cell.dataset, setting=setting, method=cell.method,
            protocol=cell.protocol, metric=name, values=values, lost=run.lost[pick.members],
            printed=cell.printed if name == "accuracy" else (None, None),
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
    """Tuned: one setting, round and number of steps for all seeds; else best round, or the last."""
    first, last = np.arange(seeds), np.full(seeds, len(scores) - 1)
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


def scores_of(problem: Problem, p: Protocol, seeds: int) -> Test:
    """Models and fine-tuning rates of all members -> what their clients score, compiled once.

    Where every client has its own model, those that never took part have none.
    """

    def program(pool: Pool, rows: Rows, salt: int) -> Callable[..., Curves]:
        few = drawn(rows, seeds, few=p.few_queries, salt=salt)
        return scorer(problem, pool, few, p, steps=TEST_STEPS)

    test = problem.test
    programs = {"seen": program(test, half(test.rows, 1) if p.tuned else test.rows, 2)}
    if p.tuned:
        programs["tuning"] = program(test, half(test.rows, 0), 1)
    if problem.unseen is not None:
        programs["unseen"] = program(problem.unseen, problem.unseen.rows, 0)
    return lambda meta, rates, own: {
        name: score(meta, jnp.asarray(rates), own)
        for name, score in programs.items()
        if not (own and name == "unseen")
    }
