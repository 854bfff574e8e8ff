"""Every federated method ends alike wherever it runs: the model, what the server and clients keep.

Clients by vmap on one device are what the others are held to: four devices, memories on disk, and
Flower's apps in this process.
"""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import jax
import numpy as np
import pytest

from moml.flower.app.settings import read
from moml.flower.app.state import Place, recall
from moml.runs.job import single
from moml.training import disk
from tests.flower.common import nodes, saved, serve, settings
from tests.flower.grid import InProcess
from tests.support import federated
from tests.support.federated import NAMES, PROBLEM, config_of, trained
from tests.support.often import often

ROOT = Path(__file__).parents[2]
OFTEN = {"localmoml, carried and private", "fedavg, epochs", "scaffold", "apfl", "feddbe"}
leaves = lambda tree: [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def close(mine, theirs):
    """Equal up to the order of sums, leaf by leaf."""
    for one, other in zip(leaves(mine), leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12, strict=True)


@pytest.fixture(scope="module")
def on_mesh(tmp_path_factory, request):
    """A folder with the last state of every method that is tested, on four devices."""
    folder = tmp_path_factory.mktemp("mesh")
    mine = [item for item in request.session.items if item.path == request.path]
    names = [item.callspec.params["name"] for item in mine]
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    subprocess.run(
        [sys.executable, "-m", "tests.support.federated", str(folder), *names], check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "XLA_FLAGS": flags}, cwd=ROOT,
        timeout=600,
    )  # fmt: skip
    return folder


def check_disk(config, folder, state):
    """The rows in a file, and all else, are those in RAM."""
    job = single(config, folder=folder)
    with closing(job.execution) as execution:
        carry, _ = trained(job)
        execution.snapshot(carry, job.plan.steps, [])
        rows = execution.store.read(np.arange(PROBLEM.n))
    whole, wanted = disk.split(state)
    close(carry, whole)
    close(execution.store.layout.unpack(rows, PROBLEM.n), jax.tree.leaves(wanted))


def under_flower(config, folder):
    """The server's state after a run over three nodes, its rows, and what a client keeps."""
    run = settings(config, folder / "out")
    grid = InProcess(run, nodes(3, folder))
    _, rows = serve(grid, run)
    state, token = (
        saved(config, run["out"]),
        json.loads((folder / "out/run.json").read_text())["run"],
    )

    def kept(task, like):
        context, where = grid.contexts[100 + task % 3], folder / f"node{task % 3}"
        place = Place(context.state, where, read(run).experiment, token, task)
        return recall(place, int(state.heard[task]), like)

    return state, rows, kept


@pytest.mark.parametrize("name", often(NAMES, OFTEN))
def test_a_method_ends_alike_wherever_it_runs(name, on_mesh, tmp_path):
    config = config_of(name)
    job = single(config)
    assert job.plan.steps == federated.ROUNDS
    state, losses = trained(job)
    assert np.isfinite(losses).all()

    with np.load(on_mesh / f"{name}.npz") as found:
        close([found[str(i)] for i in range(len(found) - 1)], leaves(state))
        close(found["losses"], losses)

    flower, rows, kept = under_flower(config, tmp_path / "flower")
    close(flower.meta, state.meta)
    close(flower.server, state.server)
    answered = np.array([row["answered"] for row in rows])
    assert 0 < answered.sum() < 4 * federated.ROUNDS
    close(np.array([row["loss"] for row in rows])[answered > 0], losses[answered > 0])
    if not jax.tree.leaves(state.memory):
        return
    assert (np.asarray(state.memory.visits) > 0).tolist() == (flower.heard >= 0).tolist()
    for task in np.flatnonzero(flower.heard >= 0):
        row = jax.tree.map(lambda x, task=task: np.asarray(x)[task], state.memory)
        close(kept(int(task), row), row)
    check_disk(config_of(name, memory="disk"), tmp_path / "disk", state)
