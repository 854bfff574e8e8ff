"""CIFAR-10 clients with FedAvg's CNN, from the command to a score."""

import os

import numpy as np
import pytest

from moml.cli import run as moml
from moml.storage.metrics import read
from moml.tabular.run import load

pytestmark = pytest.mark.skipif(not os.environ.get("MOML_DATA"), reason="needs CIFAR-10")


def test_three_rounds_of_twenty_clients(tmp_path, capsys):
    out = tmp_path / "run"
    moml(
        [
            "train", "cifar10-clients", "--out", str(out), "--method", "fedper", "--rounds", "3",
            "--problem.model", "cnn", "--problem.n", "20", "--problem.unseen", "0",
            "--problem.a", "8", "--problem.test-a", "4", "--tasks-per-step", "20",
            "--local-epochs", "1", "--batch-size", "10", "--eta", "0.05", "--log-every", "1",
            "--score-every", "0", "--shots", "2",
        ]
    )  # fmt: skip
    rows = read(out / "metrics.jsonl")
    losses = [row["loss"] for row in rows if "loss" in row]
    assert len(losses) == 3 and losses[-1] < losses[0]
    learner = load(out)
    heads = [np.asarray(learner.personal(client).head.bias) for client in (0, 19)]
    assert heads[0].shape == (10,) and not np.array_equal(*heads)
    moml(["score", str(out)])
    assert "kept" in capsys.readouterr().out
