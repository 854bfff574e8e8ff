import json

import numpy as np
import pytest

from moml.data.images.arrays import by_class
from moml.paper.federated import data as federated_data
from moml.paper.federated import memory as federated_memory
from moml.paper.federated.memory import Study, verdicts
from tests.support.program import call, refused


def made(split, each, seed):
    """Images [rows, 4, 4, 1] of ten classes that differ in which pixels are bright."""
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(10), each)
    bright = np.random.default_rng(0).integers(0, 160, (10, 4, 4, 1))
    x = (bright[y] + generator.integers(0, 96, (len(y), 4, 4, 1))).astype(np.uint8)
    return by_class(x, y, [str(k) for k in range(10)], split)


COMMAND = ("reproduce", "federated-memory")


def test_the_whole_command(monkeypatch, tmp_path, capsys):
    images = made("train", 3000, 1), made("test", 1000, 2)
    monkeypatch.setattr(federated_data, "images_of", lambda name, folder: images)
    for name, values in {"BETAS": (1.0, 0.3), "ETAS": (0.02,), "SHOTS": (1, 5)}.items():
        monkeypatch.setattr(federated_memory, name, values)
    code, out, _ = call(
        capsys, *COMMAND, "--k", 1, "--local-steps", 2, "--clients-per-round", 4, "--rounds", 20,
        "--seeds", 1, "--memory", "restarted", "carried", "--out", tmp_path,
    )  # fmt: skip
    assert code == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert len(rows) == 2 * 2 * 2 * 2  # memories, betas, shots, steps
    assert {row["method"] for row in rows} == {"localmoml", "localmoml-carried"}
    assert all(0 < row["mean"] < 100 for row in rows)
    at = lambda row: tuple(row["setting"][name] for name in ("shots", "steps", "beta"))
    none = {m: {at(r): r["mean"] for r in rows if r["method"] == m and r["setting"]["beta"] == 1}
            for m in ("localmoml", "localmoml-carried")}  # fmt: skip
    assert none["localmoml"] == pytest.approx(none["localmoml-carried"])  # no memory, no difference
    assert (tmp_path / "memory-cifar10.png").is_file()
    assert "localmoml-carried" in out


def test_the_rules_of_both_memories():
    of = lambda memory: Study("cifar10", 1, memory, 10, 20, 1500)
    assert of("carried").rule(5, 1) == pytest.approx(1 / 3)
    assert of("carried").rule(1, 1) == of("restarted").rule(1, 1) == 1
    assert 0.2 < of("restarted").rule(20, 1) < of("restarted").rule(2, 1) < 1


def test_verdicts_take_the_beta_nearest_to_the_rule():
    row = lambda beta, mean: {
        "method": "localmoml", "mean": mean,
        "setting": {"k": 1, "steps": 1, "shots": 5, "beta": beta, "rule": 0.26},
    }  # fmt: skip
    (found,) = verdicts([row(1.0, 60.0), row(0.33, 62.0), row(0.1, 63.0), row(0.2, None)])
    assert (found.best["mean"], found.rule["mean"], found.none["mean"]) == (63.0, 62.0, 60.0)


def test_an_unknown_memory_is_one_line(tmp_path, capsys):
    told = refused(capsys, *COMMAND, "--memory", "kept", "--out", tmp_path)
    assert "restarted, carried" in told
