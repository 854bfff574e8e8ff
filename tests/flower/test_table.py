"""Tables on the nodes: each has the rows of its own tasks, and nobody else sees them."""

from dataclasses import replace

import numpy as np
import pytest

from moml.config.problems import Table
from tests.flower.common import nodes, serve, settings, simulated, small
from tests.flower.grid import InProcess

TABLE = Table("all.csv", n=4, task="who", features="a, b", target="y", classes=2, hidden=())


def lines(keep=lambda task: True, more=0):
    """A CSV: tasks of 12 rows each, and `more` of each next one, mixed; b tells y."""
    rng = np.random.default_rng(0)
    rows = [(t, *rng.normal(size=2)) for k in range(24) for t in range(4) if k < 12 + more * t]
    text = [f"{t},{a:.6f},{b:.6f},{int(b > 0)}" for t, a, b in rows if keep(t)]
    return "\n".join(["who,a,b,y", *text]) + "\n"


@pytest.mark.parametrize(
    "local, more",
    [({}, 0), ({"local_steps": None, "local_epochs": 2, "k": None, "batch_size": 3}, 4)],
    ids=["steps", "epochs of unequal clients"],
)
def test_split_over_nodes_it_is_the_simulator_on_the_whole(local, more, tmp_path):
    whole = tmp_path / "whole.csv"
    whole.write_text(lines(more=more))
    shape = {"method": "fedavg", "tasks_per_step": 3, "shots": 1} | local
    config = small(problem=TABLE, **shape)
    run = settings(config, tmp_path / "out")
    there = nodes(2, tmp_path)
    for i, node in there.items():
        path = tmp_path / f"{i}.csv"
        path.write_text(lines(lambda task, node=node: task % 2 == node["partition-id"], more))
        node["data"] = str(path)
    w, rows = serve(InProcess(run, there), run)
    home = replace(TABLE, path=str(whole))
    expected, losses = simulated(small(problem=home, **shape))
    for mine, theirs in zip(w, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose([row["loss"] for row in rows], losses, rtol=1e-10)
    assert all(row["metric"] == "test_accuracy" and row["answered"] == 3 for row in rows)


def test_a_node_opens_no_file_of_the_servers_choice(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text(lines())
    config = small(problem=replace(TABLE, path=str(path)), tasks_per_step=3, shots=1)
    run = settings(config, tmp_path / "out", rounds=1)
    _, rows = serve(InProcess(run, nodes(2)), run)
    assert rows[0]["answered"] == 0
    assert all("ConfigError" in each["reason"] for each in rows[0]["failed"])
