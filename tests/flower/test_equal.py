"""A Flower run is the simulator's run: same seeds, same cohorts, same model."""

from dataclasses import replace

import numpy as np
import pytest

from moml.config.problems import Synthetic
from tests.flower.common import federated, nodes, serve, settings, simulated, small
from tests.flower.grid import InProcess
from tests.support.small_mnist import TINY, count_as_whole, write


def check_equal(config, folder):
    w, rows, _ = federated(config, folder)
    expected, losses = simulated(config)
    for mine, theirs in zip(w, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose([row["loss"] for row in rows], losses, rtol=1e-10)
    return rows


@pytest.mark.parametrize("clients", [4, 6], ids=["cross-device", "cross-silo"])
def test_some_clients_or_all(clients, tmp_path):
    """Of all methods: test_runtimes.py."""
    rows = check_equal(small(tasks_per_step=clients, method="fedavg"), tmp_path)
    assert [row["answered"] for row in rows] == [clients] * 3


def test_dropout_stragglers_and_weights(tmp_path):
    unequal = Synthetic(n=6, samples=30, features=3, classes=2, unequal=True)
    faults = {"dropout": 0.4, "straggle": 0.5, "weighted": True, "carried": True}
    rows = check_equal(small(problem=unequal, method="localmoml", **faults), tmp_path)
    lost = [each for row in rows for each in row["failed"]]
    assert lost and all(each["reason"] == "dropped out, as drawn" for each in lost)
    assert any(0 < row["answered"] < 4 for row in rows)


def test_a_data_set_on_the_nodes_and_none_at_the_server(tmp_path, monkeypatch):
    write(tmp_path / "data", 60, 30)
    count_as_whole(tmp_path / "data", monkeypatch.setitem)
    monkeypatch.delenv("MOML_DATA", raising=False)
    config = replace(TINY, iterations=4)
    run = settings(config, tmp_path / "out")
    there = {"data": str(tmp_path / "data")}
    grid = InProcess(run, {i: node | there for i, node in nodes(2).items()})
    w, rows = serve(grid, run)
    monkeypatch.setenv("MOML_DATA", str(tmp_path / "data"))
    for mine, theirs in zip(w, simulated(config)[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    assert rows[0]["metric"] == "test_accuracy" and 0 <= rows[0]["after"] <= 100
