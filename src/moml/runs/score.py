"""`moml score`: score a trained model again in another setting."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from moml.config.config import Config, check, kind_of
from moml.config.problems import Episodes
from moml.errors import ConfigError
from moml.runs.client_scores import groups_of, rows_of
from moml.runs.job import plan_of
from moml.runs.record import record_of
from moml.runs.runs import load, row_of
from moml.types import Record


def asked(config: Config, shots: int, steps: int | None, tasks: int | None, alone: bool) -> Config:
    """A run's configuration with other scores; None keeps what it was trained with."""
    given: Record = {"shots": shots, "test_steps": steps, "test_tasks": tasks}
    given = {name: value for name, value in given.items() if value is not None}
    if tasks is not None and config.problem.all_scored:
        raise ConfigError(
            f"tasks must not be given for {kind_of(config.problem)}: all of them are scored"
        )
    if alone:
        if not isinstance(config.problem, Episodes):
            raise ConfigError("alone must be given for episodes only")
        given["problem"] = replace(config.problem, alone=True)
    return check(replace(config, **given))


def score(
    folder: Path,
    *,
    shots: Sequence[int] | None = None,
    steps: int | None = None,
    tasks: int | None = None,
    alone: bool = False,
    best: bool = False,
) -> tuple[Config, list[Record]]:
    """Result rows of a run's newest or best model, one for each number of shots.

    For clients there are several each: those of `client_scores.rows_of`.
    """
    _, config = record_of(folder)
    ways = [
        asked(config, each, steps, tasks, alone) for each in shots or [config.shots]
    ]  # all are validated before the first is scored
    learner = load(folder, best=best)
    rows = []
    for other in ways:
        began = time.monotonic()
        plan = plan_of(other)
        if other.problem.by_client:
            groups = groups_of(other, plan, learner)
            mean, setting = float(groups[0].after.mean()), {}
        else:
            groups, mean = [], float(plan.score(learner.meta, learner.hyper))
            count = other.problem.n if other.problem.all_scored else other.test_tasks
            setting = {"tasks": count} | ({"alone": True} if alone else {})
        row = row_of(other, plan, [mean], setting, time.monotonic() - began)
        row |= {"samples": learner.samples}
        rows += rows_of(row, groups) if groups else [row]
    return config, rows
