"""A small experiment, run by Flower's apps in this process and by the simulator."""

from dataclasses import replace

import jax
import numpy as np
from flwr.app import Context, RecordDict

from moml.config.config import Config, check
from moml.config.problems import Sine
from moml.config.toml import dump
from moml.flower.app.learning import server_of
from moml.flower.app.server_app import State
from moml.flower.app.server_app import app as server_app
from moml.flower.app.settings import DEFAULTS, read
from moml.runs.job import single
from moml.storage.checkpoint import Checkpoints
from moml.storage.metrics import read as read_rows
from tests.flower.grid import InProcess

SMALL = Config(
    Sine(n=6, hidden=()),
    method="localmoml",
    carried=True,
    iterations=6,
    local_steps=2,
    tasks_per_step=4,
    k=2,
    eta=0.1,
    shots=3,
    test_steps=1,
    test_tasks=2,
    log_every=2,
    score_every=0,
)


def small(**changes):
    """The experiment with another method: that one's own options alone."""
    return check(replace(SMALL, **({"carried": None} if "method" in changes else {}) | changes))


def settings(config, out, **more):
    return DEFAULTS | {"config": dump(config), "out": str(out)} | more


def nodes(count, folder=None):
    place = lambda i: {} if folder is None else {"state-dir": str(folder / f"node{i}")}
    each = lambda i: {"partition-id": i, "num-partitions": count} | place(i)
    return {100 + i: each(i) for i in range(count)}


def serve(grid, run):
    """The leaves of w after a run, and its rows."""
    server_app(grid, Context(1, 1, {}, RecordDict(), run))
    return model(read(run).config, run["out"]), read_rows(f"{run['out']}/rounds.jsonl")


def federated(config, folder, count=3, app=None, **more):
    """w after a run over so many nodes, its rows, and the grid."""
    run = settings(config, folder / "out", **more)
    grid = InProcess(run, nodes(count, folder), **({} if app is None else {"app": app}))
    return *serve(grid, run), grid


def saved(config, out):
    """The server's state as the newest checkpoint has it."""
    server = server_of(config)
    like = State(server.meta, np.zeros(config.problem.n, np.int32), server.state)
    with Checkpoints(f"{out}/checkpoints") as kept:
        return State(*kept.load(like).state)


def model(config, out):
    """The leaves of w as the newest checkpoint has them."""
    return jax.tree.leaves(saved(config, out).meta)


def simulated(config):
    """w and the losses of the same run in the simulator."""
    job, losses = single(config), []
    state = job.execution.first()
    for t in range(job.plan.steps):
        state, info = job.execution.advance(state, t, 1)
        losses.append(float(info.loss[0]))
    return jax.tree.leaves(state.meta), losses
