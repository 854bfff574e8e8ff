"""The paper's second table: one-shot classification of Omniglot and CIFAR-100 by a small MLP."""

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.errors import ConfigError
from moml.paper.oneshot.plan import Cell, Plan, plan_of
from moml.paper.oneshot.score import EPISODES, accuracies, nearest_image
from moml.paper.oneshot.tasks import Problem
from moml.paper.sine import released
from moml.training.sweep import Sweep, mean_of_seeds, sweep
from moml.types import Hyper


@dataclass(frozen=True)
class Outcome:
    """A trained and tested cell."""

    cell: Cell
    plan: Plan | None
    run: Sweep | None
    scores: np.ndarray  # [seeds, tasks, episodes], percent
    seconds: float  # training, compilation included, scoring not


def train(plan: Plan, problem: Problem, *, seeds: int, progress: bool) -> Sweep:
    """All seeds side by side."""
    return sweep(
        plan.method, problem.loss, problem.net.init, problem.train,
        seeds=seeds, grid=plan.grid, iterations=plan.iterations, schedule=plan.schedule,
        progress=progress,
    )  # fmt: skip


def score(plan: Plan, run: Sweep, problem: Problem, *, keeps_learning: bool, count: int) -> Any:
    """The accuracy of every episode: [members, tasks, episodes]."""
    each = accuracies(problem, plan.test, keeps_learning=keeps_learning, count=count)
    return np.asarray(run.each(lambda meta, hyper: each(meta, tested_with(plan, hyper))))


def tested_with(plan: Plan, hyper: Hyper) -> Hyper:
    """What the test adapts with."""
    if plan.test_alpha is None:
        return hyper
    return hyper._replace(alpha=jnp.full_like(jnp.asarray(hyper.alpha), plan.test_alpha))


def run_cell(
    cell: Cell, problem: Problem, *, seeds: int, budget: int | None, progress: bool
) -> Outcome:
    """Train a cell with all its seeds at once and test it."""
    p, began = cell.switches, time.monotonic()
    if cell.method == "pixels":
        return Outcome(cell, None, None, np.full((1, 1, 1), float(nearest_image(problem)())), 0.0)
    if p.repeats:
        train_, test_ = (released.with_repeats(tasks) for tasks in (problem.train, problem.test))
        problem = problem._replace(train=train_, test=test_)
    plan = plan_of(cell, problem, budget)
    run = train(plan, problem, seeds=seeds, progress=progress)
    seconds = time.monotonic() - began
    learns = p.keeps_learning and cell.method != "protonet"
    count = 1 if p.keeps_learning and cell.method == "protonet" else EPISODES
    scores = score(plan, run, problem, keeps_learning=learns, count=count)
    return Outcome(cell, plan, run, scores, seconds)


def answers(outcome: Outcome, support: Any, query: Any, problem: Problem) -> np.ndarray:
    """What seed 0 takes the queries of one episode for, after adapting on its support."""
    plan, run = outcome.plan, outcome.run
    if plan is None or run is None:
        raise ConfigError(f"{outcome.cell.method} has no network to ask")
    meta, hyper = jax.tree.map(lambda leaf: leaf[0], (run.meta, run.hyper))
    mine = plan.test.merge(meta, plan.test.apply(meta, support, tested_with(plan, hyper)))
    return np.asarray(jnp.argmax(problem.net.predict(mine, query.x), axis=-1))


def row_of(outcome: Outcome) -> dict[str, Any]:
    """A result row, in the one form that all tables share."""
    cell, run, plan = outcome.cell, outcome.run, outcome.plan
    errors = outcome.scores.mean(axis=(1, 2))
    lost = ~np.isfinite(errors) if run is None else run.lost | ~np.isfinite(errors)
    mean, std = mean_of_seeds(errors, lost)
    printed = cell.setting.printed.get(cell.method, (None, None))
    ones = {} if run is None else {"beta": np.ones_like(run.hyper.eta)}  # without a memory
    used = {} if run is None else ones | run.hyper._asdict()
    used = {name: used[name] for name in ("eta", "beta") if name in used}
    return {
        "table": "oneshot",
        "dataset": cell.dataset,
        "setting": {"ways": cell.setting.ways, "images": cell.images, "split": cell.split}
        | {name: round(float(np.asarray(value)[0]), 6) for name, value in used.items()},
        "method": cell.method,
        "protocol": cell.protocol,
        "metric": "accuracy",
        "mean": mean,
        "std": std,
        "seeds": len(errors),
        "lost": int(lost.sum()),
        "paper_mean": printed[0],
        "paper_std": printed[1],
        "samples": 0 if run is None else run.samples,
        "iterations": 0 if plan is None else plan.iterations,
        "seconds": round(outcome.seconds, 2),
    }
