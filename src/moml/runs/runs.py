"""Runs in folders: begin one, go on with one, take its model."""

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import fields, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from moml.algorithms.recipes import RECIPES, Method
from moml.config.config import Config, kind_of
from moml.config.toml import dump
from moml.errors import CheckpointError, ConfigError
from moml.runs.consistency import assert_same_config, assert_same_data, assert_same_folder
from moml.runs.disk_job import job_of
from moml.runs.job import Job, Plan, plan_of, sizes_of
from moml.runs.mesh_job import mesh_job
from moml.runs.record import Record, begin, record_of, unchanged, warn_of_forgotten
from moml.runs.session import go_on, strong
from moml.runtime.process_group import ALONE, ProcessGroup, nothing
from moml.storage.checkpoint import Checkpoints
from moml.storage.files import writable_folder
from moml.storage.folder import Lock, versions
from moml.storage.metrics import COST, START, read, tensorboard_x
from moml.training.compose import hyper_of, init_key
from moml.training.fit import Learner
from moml.types import Params


def resolved(config: Config) -> Config:
    """The configuration with the step sizes in use instead of the method's own."""
    plan = plan_of(config)
    used = hyper_of(plan.method, plan.built.init(init_key(0)), sizes_of(config))
    recipe = RECIPES[config.method]
    sizes: dict[str, Any] = {n: float(str(np.asarray(v))) for n, v in used._asdict().items()}
    for name in ("beta", "gamma"):
        if getattr(recipe, name) == 1:  # the method has none
            sizes[name] = getattr(config, name)
    place = None if config.memory_dir is None else str(Path(config.memory_dir).resolve())
    return replace(config, **sizes, **_options(config, plan.method), memory_dir=place)


def _options(config: Config, chosen: Method) -> Record:
    """The options that a method takes, as it has them: its defaults may change one day."""
    recipe, special = RECIPES[config.method], {n for r in RECIPES.values() for n in r.takes}
    told = {}
    for field in fields(Config):
        open_ = field.name not in recipe.fixed and field.name not in special - set(recipe.takes)
        if open_ and getattr(config, field.name) is None and hasattr(chosen.options, field.name):
            told[field.name] = getattr(chosen.options, field.name)
    if "outer" in told:
        told["outer"] = "sgd" if chosen.options.outer is None else "adam"
    if "tied" in told:  # a function there, a word here
        told["tied"] = False
    return told


def train(
    config: Config,
    folder: Path,
    *,
    source: Path | None = None,
    progress: bool = False,
    board: bool = False,
    mesh: Mesh | None = None,
    group: ProcessGroup = ALONE,
) -> tuple[Config, Job]:
    """Begin a run in a folder, and do it to the end; the configuration as it was resolved.

    With a `source`, another run, it starts from w there. With a `mesh` its tasks are shared out to
    many devices, those of all processes of the `group`.
    """
    if board:
        tensorboard_x()  # missed before anything is begun
    given = config
    config = group.run_all("config", lambda: resolved(given))
    assert_same_config(group, config)
    plan = group.run_all("plan", lambda: plan_of(config))
    start = None if source is None else group.run_all("from", lambda: _start(source, plan))
    assert_same_data(group, plan, start)
    with ExitStack() as open_:
        job = _job(config, folder, plan, mesh, group, start)

        def claim() -> None:
            open_.enter_context(Lock(writable_folder(folder)))
            ready = job.disk.store.check_new if job.disk else nothing
            begin(folder, config, {} if source is None else {"from": str(source)}, ready)

        assert_same_folder(group, folder)
        group.run_all("begin", claim if group.leads else nothing)
        if source is not None:
            _save_first(folder, config, job, group)
        go_on(folder, config, job, progress=progress, board=board, group=group)
    return config, job


def _job(
    config: Config,
    folder: Path,
    plan: Plan,
    mesh: Mesh | None,
    group: ProcessGroup,
    start: Params | None = None,
) -> Job:
    if mesh is None:
        return job_of(config, folder, plan, start)
    if config.memory == "disk":
        raise ConfigError("memory = disk is for one device of one process; given several")
    return mesh_job(config, plan, mesh, group, start)


def _start(source: Path, plan: Plan) -> Params:
    """The parameters w of another run, if the network is the same."""
    params = load(source).params
    told = lambda tree: [
        f"{jax.tree_util.keystr(at, simple=True, separator='/')} {list(leaf.shape)}"
        for at, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]
    for was, wanted in zip_longest(told(params), told(plan.built.init(init_key(0)))):
        if was != wanted:
            raise ConfigError(
                f"{source} has another network: {was or 'nothing'}, and here it is "
                f"{wanted or 'nothing'}"
            )
    return params


def _save_first(folder: Path, config: Config, job: Job, group: ProcessGroup) -> None:
    """A checkpoint of step 0, so that the run needs the other one no more."""
    info = {"metrics": START._asdict(), "config": dump(config), "versions": versions()}
    carry = job.first() if job.place is None else job.place.saved(job.place.first())
    with (
        Checkpoints(folder / "checkpoints", config.keep, group) as kept,
        job.disk or nullcontext() as disk,
    ):
        if disk:
            disk.begin(carry, None)
            info |= disk.saving(0, [])
        kept.save(0, carry, info)


def resume(
    folder: Path,
    allow: Sequence[str] = (),
    *,
    progress: bool = False,
    board: bool = False,
    mesh: Mesh | None = None,
    group: ProcessGroup = ALONE,
) -> tuple[Config, Job]:
    """Go on with a run from its last good checkpoint; on other devices than before, if need be."""
    group.run_all("record", lambda: record_of(folder))
    assert_same_folder(group, folder)
    with ExitStack() as open_:

        def claim() -> None:
            open_.enter_context(Lock(folder))

        group.run_all("begin", claim if group.leads else nothing)
        record, config, note = group.run_all("config", lambda: unchanged(folder, allow))
        assert_same_config(group, config)
        warn_of_forgotten(record)
        if "from" in record and not Checkpoints(folder / "checkpoints").steps():
            raise CheckpointError(
                f"{folder} was stopped before it began: remove it, and begin it again from "
                f"{record['from']}"
            )
        plan = group.run_all("plan", lambda: plan_of(config))
        assert_same_data(group, plan, None)
        job = _job(config, folder, plan, mesh, group)
        ready = note if group.leads else nothing
        go_on(folder, config, job, progress=progress, board=board, ready=ready, group=group)
    return config, job


def load(folder: Path | str, *, best: bool = False) -> Learner:
    """The model of a run's newest good checkpoint, or of its best one, to adapt and to evaluate.

    >>> load("nowhere")
    Traceback (most recent call last):
        ...
    moml.errors.ConfigError: nowhere holds no run: there is no run.json in it
    """
    folder = Path(folder)
    record, config = record_of(folder)
    if "grid" in record:
        raise ConfigError(f"{folder} holds a sweep, not one model: take the best of its rows")
    plan = plan_of(config)
    job = job_of(config, folder, plan)
    with Checkpoints(folder / "checkpoints", config.keep) as kept:
        found = kept.load(jax.eval_shape(job.first), best=best)
    if found is None:
        raise CheckpointError(f"{folder} has no checkpoint yet")
    state = strong(found.state)
    hyper = hyper_of(plan.method, plan.built.init(init_key(config.seed)), sizes_of(config))
    rows = [row for row in read(folder / "metrics.jsonl") if row["step"] <= found.step]
    losses = np.array([row["loss"] for row in rows], float)
    return Learner(plan.method, state.meta, hyper, state, losses, job.samples(found.step))


def row_of(
    config: Config, job: Job, values: Sequence[float | None], setting: Record, seconds: float
) -> Record:
    """A result row: the last scores, one of each seed."""
    kept = [value for value in values if value is not None]
    return {
        "table": "train",
        "dataset": kind_of(config.problem),
        "setting": {"k": config.k, "shots": config.shots, "steps": config.test_steps} | setting,
        "method": config.method,
        "protocol": "strict",
        "metric": job.metric,
        "mean": float(np.mean(kept)) if kept else None,
        "std": float(np.std(kept)) if kept else None,
        "seeds": len(values),
        "lost": len(values) - len(kept),
        "paper_mean": None,
        "paper_std": None,
        "samples": job.samples(job.steps),
        "iterations": config.iterations,
        "seconds": round(seconds, 2),
    }


def last_row(config: Config, job: Job, folder: Path, seconds: float) -> Record:
    """The result row of a run that is done."""
    score = read(folder / "metrics.jsonl")[-1]["score"]
    seen = {name: value for name, value in sizes_of(config).items() if value is not None}
    return row_of(config, job, [score], seen | {"seed": config.seed}, seconds)


def spent(folder: Path) -> dict[str, int] | None:
    """What the rounds of a run have cost by its last line of metrics; None where it has none."""
    return read(folder / "metrics.jsonl")[-1].get(COST)
