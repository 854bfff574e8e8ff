"""`moml score`: score a trained model again in another setting."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from moml.config.config import Config, check, fields_of, kind_of
from moml.config.problems import Episodes
from moml.errors import ConfigError
from moml.runs import stored_scores
from moml.runs.client_scores import (
    AS_TRAINED,
    FineTuning,
    Stores,
    Values,
    groups_of,
    kept_alone,
    metric_of,
    rows_of,
)
from moml.runs.job import Plan, client_scores_of, plan_of
from moml.runs.record import record_of
from moml.runs.runs import load, row_of, stores_of
from moml.training.clients import ClientScores
from moml.training.fit import Learner
from moml.types import Record

OF_CLIENTS = "epochs, rate, leaves and local are for runs whose clients have samples of their own"


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
    tuning: FineTuning = AS_TRAINED,
    local: Path | None = None,
) -> tuple[Config, list[Record]]:
    """Result rows of a run's newest or best model.

    Of clients those of `client_scores.rows_of`, which are also stored in the folder for the report;
    of other tasks one for each number of shots.
    """
    _, config = record_of(folder)
    ways = [
        asked(config, each, steps, tasks, alone) for each in shots or [config.shots]
    ]  # all are validated before the first is scored
    plan = plan_of(ways[0])
    by = scored_by_client(config, plan)
    if by is None and (local is not None or tuning != AS_TRAINED):
        raise ConfigError(OF_CLIENTS)
    others = None if by is None or local is None else _alone(config, by, local)
    learner = load(folder, best=best)
    rows = []
    if by is None or by.tested is not plan.built.unseen:
        for i, other in enumerate(ways):
            began = time.monotonic()
            plan = plan_of(other) if i else plan
            mean = float(plan.score(learner.meta, learner.hyper))
            count = other.problem.n if other.problem.all_scored else other.test_tasks
            setting = {"tasks": count} | ({"alone": True} if alone else {})
            row = row_of(other, plan, [mean], setting, time.monotonic() - began)
            rows.append(row | {"samples": learner.samples})
    if by is not None:
        stores = stores_of(folder, plan, learner, best=best)
        numbers = [way.shots for way in ways]
        found = client_rows(ways[0], plan, learner, by, stores, numbers, tuning, others)
        rows += found
        if not best and learner.state is not None:
            stored_scores.store(folder, learner.state.step, found)
    return config, rows


def scored_by_client(config: Config, plan: Plan) -> ClientScores | None:
    """How a run is scored client by client; None where it is not."""
    federated = plan.method.algorithm.rounds is not None or config.problem.by_client
    return client_scores_of(plan.built) if federated else None


def client_rows(
    config: Config,
    plan: Plan,
    learner: Learner,
    by: ClientScores,
    stores: Stores,
    shots: Sequence[int],
    tuning: FineTuning = AS_TRAINED,
    alone: Values | None = None,
) -> list[Record]:
    """The rows of `client_scores.rows_of`."""
    began, (metric, higher) = time.monotonic(), metric_of(config)
    groups = groups_of(config, plan, learner, by, stores, shots, tuning, alone)
    row = row_of(config, plan, [0.0], {}, time.monotonic() - began)
    row |= {"setting": {"k": row["setting"]["k"]}, "samples": learner.samples}
    return rows_of(row, groups, metric, higher=higher)


def _alone(config: Config, by: ClientScores, folder: Path) -> Values:
    """The scores of each client in a run of method `local` on the same problem."""
    _, other = record_of(folder)
    if other.method != "local":
        raise ConfigError(f"local must be a run of the method local; {folder} is of {other.method}")
    here, there = fields_of(config), fields_of(other)
    for name in here | there:
        if name.startswith("problem.") and here.get(name) != there.get(name):
            raise ConfigError(
                f"{name} must be {here.get(name)} in {folder}, as in the run that is scored; got "
                f"{there.get(name)}"
            )
    plan, learner = plan_of(other), load(folder)
    return kept_alone(plan, learner, by, stores_of(folder, plan, learner))
