"""Every federated method on a small problem, in which clients fail, straggle and differ in size.

`python -m tests.support.federated FOLDER NAME ...` trains some of them on the devices of its
process, and writes the last state of each to FOLDER/NAME.npz.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tests.conftest  # noqa: F401  double precision, strict promotion
from moml.config.config import Config, check, options_of
from moml.config.problems import Synthetic
from moml.methods import METHODS
from moml.runs.job import single
from moml.runtime.mesh import mesh

ROUNDS = 4
BUSY = {"dropout": 0.4, "straggle": 0.5, "weighted": True}
PROBLEM = Synthetic(n=6, samples=30, features=3, classes=2, unequal=True, hidden=(3,))
CONFIG = Config(
    PROBLEM, method="fedavg", local_steps=2, iterations=2 * ROUNDS, tasks_per_step=4, k=2, eta=0.1,
    shots=3, test_steps=1, test_tasks=2, log_every=4, score_every=0,
)  # fmt: skip
EPOCHS: dict[str, Any] = {"local_steps": None, "local_epochs": 2, "batch_size": 4, "k": None}
EPOCHS["iterations"] = ROUNDS  # a round of epochs is one
MORE = {  # other ways of some methods
    "localmoml, carried": {"carried": True},
    "localmoml, private": {"private": "head"},
    "localmoml, carried and private": {"carried": True, "private": "head"},
    "per-fedavg, private": {"private": "head"},
    "per-fedavg, hessian-free": {"curvature": "finite-difference"},
    "fedbn": {"private": "bias"},  # the network has no norm
    "pfedme": {"prox": 5.0, "prox_steps": 2, "server_rate": 0.7},
    "fedavg, epochs": EPOCHS,
    "scaffold, epochs": EPOCHS,
    "fedadam": {"server_rate": 0.1, "tau": 0.05},
    "fedyogi": {"server_rate": 0.1, "tau": 0.05},
}
NAMES = sorted({name for name in METHODS if "local_steps" in options_of(name)} | set(MORE))


def config_of(name: str, **more: Any) -> Config:
    """The configuration of a method, or of a way of it."""
    return check(replace(CONFIG, method=name.split(",")[0], **BUSY | MORE.get(name, {}) | more))


def trained(job: Any) -> tuple[Any, np.ndarray]:
    """The last carry of a job, and the loss of every round."""
    carry, losses = job.execution.first(), []
    for begin in range(0, job.plan.steps, job.plan.length):
        size = min(job.plan.length, job.plan.steps - begin)
        carry, info = job.execution.advance(carry, begin, size)
        losses.append(np.ravel(info.loss))
    return carry, np.concatenate(losses)


def main(folder: str, *names: str) -> None:
    """Write a file of leaves for each method."""
    assert mesh().size > 1
    for name in names:
        job = single(config_of(name), mesh=mesh())
        carry, losses = trained(job)
        state, _ = job.execution.snapshot(carry, job.plan.steps, [])
        leaves = {str(i): leaf for i, leaf in enumerate(jax.tree.leaves(state))}
        np.savez(Path(folder) / f"{name}.npz", losses=losses, **leaves)


if __name__ == "__main__":
    main(*sys.argv[1:])
