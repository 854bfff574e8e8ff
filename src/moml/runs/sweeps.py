"""Sweeps in folders: a grid times seeds as one compiled program, in parts that fit into memory.

RUN/  config.toml  run.json  lock       as in a run; run.json has the grid and the size of a part
      part-000/ ...                     metrics, checkpoints and log of each part
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from moml.config.config import Config, step_sizes
from moml.errors import ConfigError, check_count
from moml.runs.job import Plan, many, plan_of
from moml.runs.record import begin, record_of, resume_words, unchanged, warn_of_forgotten
from moml.runs.runs import resolved, row_of
from moml.runs.session import Logs, run_job
from moml.runtime import simulate
from moml.runtime.memory_budget import bytes_of, free_bytes
from moml.runtime.process_group import nothing
from moml.storage.files import writable_folder
from moml.storage.folder import Lock
from moml.storage.metrics import read
from moml.storage.sinks import check_sinks
from moml.training.choice.choose import by_rule
from moml.training.compose import first_program, hyper_of, init_key, run_key
from moml.training.sweep import IN_SWEEP, grid_of, stacked_hyper
from moml.types import Record

log = logging.getLogger("moml")
SHARE = 0.7  # of the free memory: a checkpoint's copy and the scores need some as well


def grid_from(words: Sequence[str]) -> dict[str, list[float]]:
    """Parse the grid of the command line.

    >>> grid_from(["eta=.002,.005", "beta=.1"])
    {'eta': [0.002, 0.005], 'beta': [0.1]}
    """
    grid: dict[str, list[float]] = {}
    for word in words:
        name, _, values = word.partition("=")
        if name in grid:
            raise ConfigError(f"grid: {name} is given twice; give {name}=NUMBER,NUMBER once")
        try:
            grid[name] = [float(value) for value in values.split(",")]
        except ValueError as error:
            raise ConfigError(
                f"grid must have the form NAME=NUMBER,NUMBER, such as eta=.002,.005; got {word!r}"
            ) from error
    return grid


def members_that_fit(plan: Plan, config: Config, members: int, budget: float | None) -> int:
    """How many members fit into `budget` bytes side by side, by what the compiler reports."""
    params = plan.built.init(init_key(0))
    hyper = hyper_of(plan.method, params, step_sizes(config))
    program = simulate.program(plan.method.algorithm, plan.schedule, members=True)
    one = jax.eval_shape(first_program(plan.method), params, plan.built.tasks, run_key(0), hyper)
    wide = lambda tree, m: jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((m, *x.shape), x.dtype), tree
    )

    def needs(m: int) -> int:
        keys = jax.eval_shape(lambda: jax.vmap(run_key)(jnp.arange(m)))
        return bytes_of(program, wide(one, m), plan.built.tasks, keys, wide(hyper, m), plan.length)

    while budget is not None and members > 1 and (taken := needs(members)) > budget:
        log.info("%d members take %.2f GB of %.2f", members, taken / 1e9, budget / 1e9)
        members = max(1, min(members - 1, int(members * budget / taken)))
    return members


def sweep_run(
    config: Config,
    folder: Path,
    grid: dict[str, list[float]],
    seeds: int,
    *,
    memory: float | None = None,
    progress: bool = False,
    log: Sequence[str] = (),
) -> tuple[Config, list[Record]]:
    """Start a sweep in a folder and train to its end; `memory` in bytes, else what is free."""
    check_sinks(log)
    check_count("seeds", seeds)
    if config.memory == "disk":
        raise ConfigError("memory must be ram in a sweep; got disk, which moml train takes")
    plan = plan_of(config)
    if plan.method.betas and "beta" not in grid:
        by_rule(plan.method, IN_SWEEP)
    plan = plan._replace(method=plan.method._replace(betas=()))
    settings = grid_of(grid, seeds, plan.method.hyper._asdict())
    config = resolved(config, plan)
    stacked_hyper(plan.method, plan.built.init(init_key(0)), settings, step_sizes(config))  # checks
    with Lock(writable_folder(folder, 0o700)):
        free = free_bytes()
        budget = memory if memory is not None else None if free is None else SHARE * free
        size = members_that_fit(plan, config, len(settings), budget)
        record: Record = {"grid": grid, "seeds": seeds, "members": size}
        begin(folder, config, record)
        return config, _train(folder, config, plan, record, progress, log)


def resume_sweep(
    folder: Path, allow: Sequence[str] = (), *, progress: bool = False, log: Sequence[str] = ()
) -> tuple[Config, list[Record]]:
    """Continue a sweep from the last good checkpoint of each of its parts."""
    check_sinks(log)
    record_of(folder)
    with Lock(folder):
        record, config, note = unchanged(folder, allow)
        warn_of_forgotten(record)
        return config, _train(folder, config, plan_of(config), record, progress, log, note)


def parts_of(folder: Path, record: Record) -> list[tuple[Path, list[Record]]]:
    """The folder of each part of a sweep, and the settings of its members."""
    settings = grid_of(record["grid"], record["seeds"])
    size = check_count("members", record["members"])
    starts = range(0, len(settings), size)
    return [(folder / f"part-{i:03d}", settings[at : at + size]) for i, at in enumerate(starts)]


def _train(
    folder: Path,
    config: Config,
    plan: Plan,
    record: Record,
    progress: bool,
    services: Sequence[str],
    ready: Callable[[], None] = nothing,
) -> list[Record]:
    """Train part after part; the rows of all, the best first. `ready` is called once."""
    began, scores = time.monotonic(), []
    parts, every = parts_of(folder, record), []
    for number, (part, settings) in enumerate(parts, start=1):
        run_job(
            writable_folder(part, 0o700), config, many(config, settings, plan), progress=progress,
            logs=Logs(services, folder, tuple(settings)),
            resume=resume_words(folder, config.plugin, services), more=number < len(parts),
            ready=ready if number == 1 else nothing,
        )  # fmt: skip
        scores += read(part / "metrics.jsonl")[-1]["score"]
        every += settings
    return ranked(config, plan, every, scores, time.monotonic() - began)


def ranked(
    config: Config,
    plan: Plan,
    settings: list[Record],
    scores: list[float | None],
    seconds: float,
) -> list[Record]:
    """A row for each point of the grid, over its seeds; the best first, lost ones last."""
    points: dict[tuple[tuple[str, float], ...], list[float | None]] = {}
    for setting, score in zip(settings, scores, strict=True):
        point = tuple((name, value) for name, value in setting.items() if name != "seed")
        points.setdefault(point, []).append(score)
    rows = [row_of(config, plan, values, dict(point), seconds) for point, values in points.items()]
    sign = -1 if plan.built.higher else 1
    return sorted(
        rows, key=lambda row: (row["lost"], np.inf if row["mean"] is None else sign * row["mean"])
    )
