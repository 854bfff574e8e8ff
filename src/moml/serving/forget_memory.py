"""Reset the memories of tasks in a run by `moml train CONFIG`, in every checkpoint."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from moml.config.config import Config, step_sizes
from moml.errors import CheckpointError, ConfigError
from moml.runs import stored_scores
from moml.runs.job import Plan, many, plan_of, single, store_of
from moml.runs.record import record_of, save_record
from moml.runs.sweeps import parts_of
from moml.storage.checkpoint import Checkpoints
from moml.storage.files import writing_to
from moml.storage.folder import Lock
from moml.training.compose import hyper_of, init_key
from moml.training.loop import Members
from moml.types import Record, State

ALL = 10**9  # checkpoints to keep: writing one again retires no other
Change = Callable[[State], State]


def forget_memories(folder: Path, tasks: Sequence[str]) -> list[str]:
    """Reset the memories of these tasks; checkpoints that cannot be read are removed."""
    record, config = record_of(folder)
    numbers = [_number(folder, task, config.problem.n) for task in tasks]
    plan = plan_of(config)
    rows = task_rows(config, plan)
    if not any(jax.tree.leaves(rows)):
        raise ConfigError(
            f"{folder} is of the method {config.method}, which keeps nothing of single tasks; the "
            "trace in w cannot be removed"
        )
    lines = []
    with Lock(folder, "moml forget"):
        record, _ = record_of(folder)
        if config.memory == "disk":  # no checkpoint has rows of tasks
            store = store_of(config, folder, jax.eval_shape(_begin(config, plan), 0))
            try:
                store.forget(numbers)
            except CheckpointError as error:
                raise CheckpointError(f"{error}; the tasks are not forgotten") from error
        else:
            for place, like, change in _checkpoints(folder, record, config, plan, rows, numbers):
                with Checkpoints(place, ALL) as kept:
                    removed = kept.rewrite(like, change)
                    lines += [f"removed {kept.path(step)}, which was damaged" for step in removed]
        with writing_to(folder):
            (folder / stored_scores.NAME).unlink(missing_ok=True)
        forgotten = sorted({*record.get("forgotten", []), *numbers})
        save_record(folder, record | {"forgotten": forgotten})
    return [
        f"{len(numbers):,} forgotten: in all checkpoints its row is as before the first visit",
        *lines,
        "the task is still in the data: continuing this run would learn it again (run.json keeps "
        "its number, and `moml resume` warns)",
    ]


def _number(folder: Path, task: str, n: int | None) -> int:
    if n is None:
        raise ConfigError(f"{folder} has a stream of tasks, and keeps nothing of single ones")
    if not task.isdecimal() or int(task) >= n:
        raise ConfigError(f"tasks of {folder} must be numbers from 0 to {n - 1}; got {task!r}")
    return int(task)


def _begin(config: Config, plan: Plan) -> Callable[[int | jax.Array], State]:
    """The first state of a seed, with empty memories."""
    hyper = hyper_of(plan.method, plan.built.init(init_key(0)), step_sizes(config))
    return lambda seed: plan.method.algorithm.init(plan.built.init(init_key(seed)), hyper)


def task_rows(config: Config, plan: Plan) -> PyTree[bool]:
    """For each leaf of a state, whether its first axis counts tasks."""
    begun = jax.eval_shape(_begin(config, plan), 0)
    return jax.tree.broadcast(plan.method.algorithm.rows, begun)


def _checkpoints(
    folder: Path,
    record: Record,
    config: Config,
    plan: Plan,
    rows: PyTree[bool],
    numbers: list[int],
) -> Iterator[tuple[Path, State, Change]]:
    """Folder, form and change of the checkpoints of a run, or of each part of a sweep."""
    begin = _begin(config, plan)
    if "grid" not in record:
        like = single(config, plan).execution.shapes()
        change = lambda state: cleared(state, begin(config.seed), rows, numbers)
        yield folder / "checkpoints", like, change
        return
    for part, settings in parts_of(folder, record):
        start = jax.vmap(begin)(jnp.asarray([setting["seed"] for setting in settings]))
        like = many(config, settings, plan).execution.shapes()
        change = partial(_cleared_members, start, rows, numbers)
        yield part / "checkpoints", like, change


def _cleared_members(
    start: State, rows: PyTree[bool], numbers: list[int], members: Members
) -> Members:
    state = cleared(members.state, start, rows, numbers, axis=1)  # after the members' axis
    return members._replace(state=state)


def cleared(
    state: State, start: State, rows: PyTree[bool], numbers: list[int], axis: int = 0
) -> State:
    """The state with the rows of these tasks as they were at the start."""
    at = (slice(None),) * axis + (numbers,)

    def clear(leaf: ArrayLike, first: ArrayLike, of_tasks: bool) -> np.ndarray:
        new = np.array(leaf)
        if of_tasks:
            new[at] = np.asarray(first)[at]
        return new

    return jax.tree.map(clear, state, start, rows)
