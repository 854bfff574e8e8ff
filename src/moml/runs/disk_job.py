"""One training whose memories live where its configuration says: in RAM or on disk."""

from pathlib import Path
from typing import Any

import jax

from moml.config.config import Config
from moml.runs.job import Job, Plan, plan_of, schedule_of, single, sizes_of
from moml.storage.rows_file import layout_of
from moml.storage.rows_on_disk import RowsOnDisk
from moml.training.compose import hyper_of, init_key, run_key
from moml.training.disk import Disk, split
from moml.types import Params


def job_of(
    config: Config, folder: Path, plan: Plan | None = None, params: Params | None = None
) -> Job:
    """A configuration's training in a folder: `single`, with its memories on disk if it says so."""
    if config.memory != "disk":
        return single(config, plan, params)
    plan = plan_of(config) if plan is None else plan
    params = plan.built.init(init_key(config.seed)) if params is None else params
    hyper = hyper_of(plan.method, params, sizes_of(config))
    algorithm, tasks = plan.method.algorithm, plan.built.tasks
    like = jax.eval_shape(algorithm.init, params, hyper)
    disk = Disk(
        algorithm,
        tasks,
        store_of(config, folder, like),
        like,
        run_key(config.seed),
        hyper,
        steps=plan.steps,
        length=plan.length,
        schedule=schedule_of(config),
        eager=plan.method.k if plan.method.eager else 0,
    )
    first = jax.jit(lambda params, hyper: split(algorithm.init(params, hyper))[0])
    run = lambda carry, key, begin, hyper, size: disk.run(carry, begin, size)
    job = single(config, plan, params, program=run)
    return job._replace(first=lambda: first(params, hyper), disk=disk)


def store_of(config: Config, folder: Path, like: Any) -> RowsOnDisk:
    """Where a run has its rows; `like` is a state of its method (shapes will do)."""
    place = folder / "memory" if config.memory_dir is None else Path(config.memory_dir)
    rows = split(like)[1]
    return RowsOnDisk(place, folder, jax.tree.leaves(rows)[0].shape[0], layout_of(rows))
