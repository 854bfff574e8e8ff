"""A run on many devices or in many processes: each device with the tasks that it owns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from moml.config.config import Config
from moml.runs.job import Job, Plan, schedule_of, single, sizes_of
from moml.runtime import sharded
from moml.runtime.account import all_reduced
from moml.runtime.mesh import gathered, spread, task_data
from moml.runtime.process_group import ProcessGroup
from moml.storage.shares import Share
from moml.training.compose import fill_key, hyper_of, init_key, run_key
from moml.types import Params


class Place(NamedTuple):
    """Where a carry lies, if not on one device."""

    first: Callable[[], Any]
    spread: Callable[[Any], Any]  # a whole state from the host -> a carry
    saved: Callable[[Any], Any]  # a carry -> what this process saves of it
    told: Callable[[], str]  # how tasks and sums are shared out


def mesh_job(
    config: Config, plan: Plan, mesh: Mesh, group: ProcessGroup, params: Params | None = None
) -> Job:
    """The run of `single`, up to the order of a sum; its carry lies on a mesh."""
    algorithm, tasks = plan.method.algorithm, plan.built.tasks
    sharded.check(algorithm, tasks, mesh, config.method)
    params = plan.built.init(init_key(config.seed)) if params is None else params
    hyper = hyper_of(plan.method, params, sizes_of(config))
    key = run_key(config.seed)
    at_once = plan.method.options.at_once
    run = sharded.program(algorithm, tasks, mesh, schedule_of(config), at_once=at_once)
    data = task_data(tasks, mesh)
    made: dict[int, Any] = {}

    def program(state: Any, key: Any, begin: int, hyper: Any, size: int) -> Any:
        given = (state, data, key, jnp.asarray(begin, jnp.int32), hyper)
        if size not in made:
            made[size] = run.lower(*given, size).compile()
        return made[size](*given)

    def first() -> Any:
        state = sharded.first(algorithm, mesh)(params, hyper)
        if not plan.method.options.eager or tasks.n is None:
            return state
        fill = sharded.fill(algorithm, tasks, mesh, plan.method.options.k)
        return fill(state, fill_key(key), hyper)

    def saved(state: Any) -> Any:
        if group.processes == 1:
            return gathered(algorithm, state, tasks.n)
        rows = jax.tree.broadcast(algorithm.rows, state)
        mine = lambda rows, leaf: share(leaf, tasks.n or 0) if rows else np.asarray(leaf)
        return jax.tree.map(mine, rows, state)

    def told() -> str:
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        where = f"{mesh.size} devices of {group.processes} process{'es' * (group.processes > 1)}"
        if not made:  # nothing was left to do
            return f"{where}: d = {size:,} parameters"
        moved = max(map(all_reduced, made.values()))
        return f"{where}: d = {size:,} parameters, {moved:,} bytes summed over devices in a step"

    here = lambda state: state._replace(meta=jax.device_get(state.meta))
    job = single(config, plan, params, program)
    place = Place(first, lambda state: spread(algorithm, state, mesh), saved, told)
    return job._replace(score=lambda state: job.score(here(state)), place=place)


def share(leaf: Array, n: int) -> Share:
    """The rows of a leaf that lie on this process's devices, without padding."""
    shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    first = min(shards[0].index[0].start or 0, n)
    rows = np.concatenate([np.asarray(shard.data) for shard in shards])
    return Share(first, rows[: n - first].copy(), n)
