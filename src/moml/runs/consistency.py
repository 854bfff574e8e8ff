"""What the processes of a run need to have alike, compared before anything is computed."""

import hashlib
import json
import os
import time
from pathlib import Path
from secrets import token_hex
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.config.config import Config, kind_of
from moml.errors import ConfigError
from moml.runs.job import Plan
from moml.runtime.process_group import Team, nothing
from moml.storage.files import writable_folder
from moml.storage.folder import versions
from moml.tasks.sampler import draw, fetch
from moml.training.compose import init_key
from moml.types import Params

SEEN = 10.0  # seconds after which what one machine wrote is seen by the others


def same(team: Team, facts: dict[str, Any], what: str) -> None:
    """Refuse processes with other facts than the first one has, by the first that differs."""
    told = [json.loads(words) for words in team.exchange(what, json.dumps(facts))]
    say = lambda facts, name: f"{name} = {facts[name]}" if name in facts else f"no {name}"
    for process, mine in enumerate(told):
        for name in told[0] | mine:
            if (one := say(mine, name)) != (other := say(told[0], name)):
                raise ConfigError(
                    f"process {process} has {one}, process 0 {other}: all need the same {what}"
                )


def same_command(team: Team, command: str, devices: int | None) -> None:
    """Refuse processes that do different things, or with other versions: they would wait for ever.

    >>> from moml.runtime.process_group import ALONE
    >>> same_command(ALONE, "train", 2)
    """
    given = {} if devices is None else {"devices": devices}
    same(team, {"command": command} | given, "command")
    kept = ("moml", "jax", "jaxlib", "x64", "matmul_precision")
    same(team, {name: versions()[name] for name in kept}, "environment")


def same_config(team: Team, config: Config) -> None:
    """Refuse processes with different configurations: their sums would mean nothing."""
    problem = {f"problem.{name}": value for name, value in vars(config.problem).items()}
    values = config.flat() | {"problem": kind_of(config.problem)} | problem
    same(team, {name: value for name, value in values.items() if value is not None}, "command")


def same_data(team: Team, plan: Plan, start: Params | None) -> None:
    """Refuse processes whose tasks differ in number, sizes or shapes, or that start elsewhere."""
    if team.processes == 1:
        return
    tasks, needs = plan.built.tasks, plan.method.algorithm.needs
    visited = lambda key: fetch(draw(key, needs, tasks), tasks)
    facts = {
        "n": tasks.n,
        "samples": _told(jax.eval_shape(visited, init_key(0))),
        "network": _told(jax.eval_shape(plan.built.init, init_key(0))),
    }
    if tasks.n is not None and tasks.sizes is not None:
        facts["sizes"] = _digest(tasks.sizes(jnp.arange(tasks.n)))
    same(team, facts | {"w": _digest(start)}, "data")


def _told(tree: Any) -> str:
    return " ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))


def _digest(tree: Any) -> str:
    bytes_ = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    return hashlib.sha256(bytes_).hexdigest()[:12]


def same_folder(team: Team, folder: Path) -> None:
    """Refuse processes that do not see the folder of process 0, by a file that it puts there."""
    if team.processes == 1:
        return
    mark, _, place = team.agree("folder", f".seen-{token_hex(8)} {folder.resolve()}").partition(" ")
    put = lambda: (writable_folder(folder) / mark).touch()
    team.together("folder", put if team.leads else nothing)
    try:
        seen = team.exchange("folder", "yes" if _comes(folder / mark) else "")
    finally:
        if team.leads:
            (folder / mark).unlink(missing_ok=True)
    for process, sees in enumerate(seen):
        if not sees:
            raise ConfigError(
                f"process {process} does not see the folder {place} of process 0: all processes "
                "need to see the same one"
            )


def _comes(path: Path) -> bool:
    end = time.monotonic() + SEEN
    while not (there := os.path.exists(path)) and time.monotonic() < end:
        time.sleep(0.05)
    return there
