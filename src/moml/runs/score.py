"""`moml score`: a trained model, asked again in another way."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from moml.config.config import Config, check
from moml.config.problems import Clients, Episodes, Table
from moml.errors import ConfigError
from moml.runs.client_scores import groups_of, rows_of
from moml.runs.job import plan_of, single
from moml.runs.record import Record, record_of
from moml.runs.runs import load, row_of


def asked(config: Config, shots: int, steps: int | None, tasks: int | None, alone: bool) -> Config:
    """A run's configuration with other scores; what is None stays as it was trained with."""
    given: dict[str, Any] = {"shots": shots, "test_steps": steps, "test_tasks": tasks}
    given = {name: value for name, value in given.items() if value is not None}
    if tasks is not None and isinstance(config.problem, Clients | Table):
        raise ConfigError("tasks is for drawn test tasks: of clients and tables all are scored")
    if alone:
        if not isinstance(config.problem, Episodes):
            raise ConfigError("alone is for episodes: elsewhere no answer depends on the others")
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
    """A result row for each number of shots: the run's newest model, or its best.

    Of clients there are several: those of `client_scores.rows_of`.
    """
    _, config = record_of(folder)
    ways = [
        asked(config, each, steps, tasks, alone) for each in shots or [config.shots]
    ]  # all are checked before the first is scored
    learner = load(folder, best=best)
    rows = []
    for other in ways:
        began = time.monotonic()
        plan = plan_of(other)
        job = single(other, plan)
        if isinstance(other.problem, Clients):
            groups = groups_of(other, plan, learner)
            mean, setting = float(groups[0].after.mean()), {}
        else:
            groups, mean = [], float(jax.jit(plan.score)(learner.meta, learner.hyper))
            count = other.problem.n if isinstance(other.problem, Table) else other.test_tasks
            setting = {"tasks": count} | ({"alone": True} if alone else {})
        row = row_of(other, job, [mean], setting, time.monotonic() - began)
        row |= {"samples": learner.samples}
        rows += rows_of(row, groups) if groups else [row]
    return config, rows
