"""A task's memory in a run by `moml train CONFIG`: back to its start, in every checkpoint."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.config.config import Config
from moml.errors import ConfigError
from moml.runs.job import Plan, many, plan_of, single, sizes_of, store_of
from moml.runs.record import record_of
from moml.storage.checkpoint import Checkpoints
from moml.storage.files import write_text
from moml.storage.folder import Lock
from moml.training.compose import hyper_of, init_key
from moml.training.sweep import grid_of
from moml.types import Record

ALL = 10**9  # checkpoints are kept: none is retired by being written again


def forget_memories(folder: Path, tasks: Sequence[str]) -> list[str]:
    """Every checkpoint without these tasks' memories; those that cannot be read are removed."""
    record, config = record_of(folder)
    numbers = [_number(folder, word, config.problem.n) for word in tasks]
    plan = plan_of(config)
    axes = task_axes(config, plan)
    if not any(axis is not None for axis in axes):
        raise ConfigError(
            f"{folder} is of the method {config.method}, which keeps nothing of single tasks; the "
            "trace in w cannot be removed"
        )
    lines = []
    with Lock(folder, "moml forget"):
        record, _ = record_of(folder)
        noted = sorted({*record.get("forgotten", []), *numbers})
        text = json.dumps(record | {"forgotten": noted}, indent=1) + "\n"
        write_text(text, folder / "run.json")
        if config.memory == "disk":
            store_of(config, folder, jax.eval_shape(_begin(config, plan), 0)).forget(numbers)
        for place, like, change in _parts(folder, record, config, plan, axes, numbers):
            with Checkpoints(place, ALL) as kept:
                for step in kept.rewrite(like, change):
                    lines.append(f"{kept.path(step)} was damaged: it is removed, as all it held")
    words = (
        f"{len(numbers):,} forgotten: the memory is as before the first visit, in all checkpoints"
    )
    again = "the task is still in the data: going on with this run would learn it again"
    return [words, *lines, f"{again} (run.json keeps its number, and `moml resume` warns)"]


def _number(folder: Path, word: str, n: int | None) -> int:
    if n is None:
        raise ConfigError(f"{folder} has tasks without end, and keeps nothing of single ones")
    if not word.isdecimal() or int(word) >= n:
        raise ConfigError(f"tasks of {folder} are numbers from 0 to {n - 1}; given {word!r}")
    return int(word)


def _begin(config: Config, plan: Plan) -> Callable[[Any], Any]:
    """A seed's first state, with memories that are empty."""
    hyper = hyper_of(plan.method, plan.built.init(init_key(0)), sizes_of(config))
    return lambda seed: plan.method.algorithm.init(plan.built.init(init_key(seed)), hyper)


def task_axes(config: Config, plan: Plan) -> list[int | None]:
    """Of each leaf of a state the axis that counts tasks; None where it has no row of each."""
    begun = jax.eval_shape(_begin(config, plan), 0)
    rows = jax.tree.broadcast(plan.method.algorithm.rows, begun)
    return [0 if of_tasks else None for of_tasks in jax.tree.leaves(rows)]


def _parts(
    folder: Path,
    record: Record,
    config: Config,
    plan: Plan,
    axes: list[int | None],
    numbers: list[int],
) -> list[tuple[Path, Any, Callable[[Any], Any]]]:
    """The checkpoints of a run, or of each part of a sweep: where, of which form, what to do."""
    if config.memory == "disk":  # no checkpoint has rows
        return []
    begin = _begin(config, plan)
    later = [None if axis is None else axis + 1 for axis in axes]  # members come first
    if "grid" not in record:
        like = single(config, plan).execution.shapes()
        clear = lambda state: _cleared(state, begin(config.seed), axes, numbers)
        return [(folder / "checkpoints", like, clear)]
    settings, size = grid_of(record["grid"], record["seeds"]), record["members"]
    found: list[tuple[Path, Any, Callable[[Any], Any]]] = []
    for part, first in enumerate(range(0, len(settings), size)):
        rows = settings[first : first + size]
        start = jax.vmap(begin)(jnp.asarray([row["seed"] for row in rows]))
        place = folder / f"part-{part:03d}" / "checkpoints"
        like = many(config, rows, plan).execution.shapes()
        found.append((place, like, partial(_cleared_members, start, later, numbers)))
    return found


def _cleared_members(start: Any, axes: list[int | None], numbers: list[int], members: Any) -> Any:
    return members._replace(state=_cleared(members.state, start, axes, numbers))


def _cleared(state: Any, start: Any, axes: list[int | None], numbers: list[int]) -> Any:
    """The state, with the rows of these tasks as they were at the start."""
    leaves, tree = jax.tree.flatten(state)
    made = []
    for leaf, first, axis in zip(leaves, jax.tree.leaves(start), axes, strict=True):
        new = np.array(leaf)
        if axis is not None:
            rows = (slice(None),) * axis + (numbers,)
            new[rows] = np.asarray(first)[rows]
        made.append(new)
    return jax.tree.unflatten(tree, made)
