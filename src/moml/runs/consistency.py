"""Checks, before anything is computed, that all processes of a run are to do the same."""

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import NamedTemporaryFile

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from moml.config.config import Config, kind_of
from moml.errors import ConfigError
from moml.runs.job import Plan
from moml.runtime.process_group import ProcessGroup
from moml.storage.files import writable_folder
from moml.storage.folder import versions
from moml.tasks.sampler import draw, fetch
from moml.training.compose import init_key
from moml.types import Params

VISIBLE = 10.0  # seconds after which a file written by one machine is visible to the others


def assert_equal(group: ProcessGroup, what: str, facts: Mapping[str, object]) -> None:
    """Raise ConfigError where facts differ from those of process 0, with the first that does."""
    texts = {name: str(value) for name, value in facts.items() if value is not None}
    every = [json.loads(text) for text in group.exchange(what, json.dumps(texts))]
    show = lambda facts, name: f"{name} = {facts[name]}" if name in facts else f"no {name}"
    for process, own in enumerate(every):
        for name in every[0] | own:
            if (one := show(own, name)) != (other := show(every[0], name)):
                raise ConfigError(
                    f"process {process} has {one}, process 0 {other}: all need the same {what}"
                )


def assert_same_command(group: ProcessGroup, command: str, devices: int | None) -> None:
    """Check the command and the versions.

    >>> from moml.runtime.process_group import ALONE
    >>> assert_same_command(ALONE, "train", 2)
    """
    facts = {"command": command, "devices": devices, "processes": group.processes}
    assert_equal(group, "command", facts)
    known = ("moml", "jax", "jaxlib", "x64", "matmul_precision")
    assert_equal(group, "environment", {name: versions()[name] for name in known})


def assert_same_config(group: ProcessGroup, config: Config) -> None:
    """Check the configuration."""
    problem = {f"problem.{name}": value for name, value in vars(config.problem).items()}
    assert_equal(group, "command", config.flat() | {"problem": kind_of(config.problem)} | problem)


def assert_same_data(group: ProcessGroup, plan: Plan, start: Params | None) -> None:
    """Check the number, sizes and shapes of the tasks, and the parameters to start from."""
    if group.processes == 1:
        return
    tasks, needs = plan.built.tasks, plan.method.algorithm.needs
    n = tasks.n
    visit = jax.eval_shape(lambda key: fetch(draw(key, needs, tasks), tasks), init_key(0))
    facts = {
        "n": n,
        "samples": _shapes(visit),
        "network": _shapes(jax.eval_shape(plan.built.init, init_key(0))),
        "sizes": _digest(tasks.sizes(jnp.arange(n))) if n is not None and tasks.sized else None,
        "w": _digest(start),
    }
    assert_equal(group, "data", facts)


def _shapes(tree: PyTree) -> str:
    return " ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))


def _digest(tree: PyTree) -> str:
    bytes_ = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    return hashlib.sha256(bytes_).hexdigest()[:12]


def assert_same_folder(group: ProcessGroup, folder: Path) -> None:
    """Check that all processes see the folder of process 0, by a temporary file in it."""
    if group.processes == 1:
        return
    with ExitStack() as stack:

        def create() -> str:
            shared = writable_folder(folder, 0o700)
            file = NamedTemporaryFile(dir=shared, prefix=".seen-")  # noqa: SIM115
            return Path(stack.enter_context(file).name).name

        name = group.agree("folder", group.run_all("folder", create if group.leads else str))
        deadline = time.monotonic() + VISIBLE
        while not (seen := (folder / name).exists()) and time.monotonic() < deadline:
            time.sleep(0.05)
        answers = group.exchange("folder", f"{seen:d} {folder.resolve()}")
    for process, answer in enumerate(answers):
        if answer.startswith("0"):
            place = f"the folder {answers[0][2:]} of process 0"
            raise ConfigError(f"process {process} does not see {place}: all need the same folder")
