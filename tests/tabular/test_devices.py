"""A table's members on four devices, or in two processes, are those of one device."""

import json
import socket

import numpy as np
import pytest

import moml
from moml.cli import main
from moml.errors import ConfigError
from moml.storage.arrays import read_arrays
from tests.support.processes import begun, ended, finished

X64 = {"JAX_ENABLE_X64": "1"}
FEW = ["--members", 3, "--iterations", 20, "--shots", 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two tables: one is cross-fitted, one has a part held out."""
    place = tmp_path_factory.mktemp("tables")
    for name, users in (("few", 12), ("many", 110)):
        rng = np.random.default_rng(users)
        user = np.repeat(np.arange(users), 7)
        x = rng.normal(size=len(user))
        y = rng.normal(size=users)[user] + x * rng.normal(size=users)[user]
        lines = [f"{u},{a},{b}" for u, a, b in zip(user, x, y, strict=True)]
        (place / f"{name}.csv").write_text("\n".join(["user,x,y", *lines]) + "\n")
    return place


def train(folder, name, out, *more):
    table = ["--data", folder / f"{name}.csv", "--task", "user", "--target", "y"]
    kinds = ["--kinds", "summary", "head"] if name == "many" else []  # a part held out
    return ["train", *table, *FEW, *kinds, "--out", folder / out, *more]


def near(one, two):
    """Runs are equal up to the order in which numbers are summed."""
    for mine, other in zip(*(json.loads((f / "evaluation.json").read_text()) for f in (one, two)),
                           strict=True):  # fmt: skip
        assert mine.keys() == other.keys()
        np.testing.assert_allclose(mine["mean"], other["mean"], rtol=1e-7)
    for file in ("model.safetensors", "personal.safetensors"):
        mine, other = read_arrays(one / file), read_arrays(two / file)
        assert mine.keys() == other.keys()
        for leaf, values in mine.items():
            np.testing.assert_allclose(values, other[leaf], rtol=1e-6, atol=1e-8, err_msg=leaf)
    ids = [json.loads((f / "table.json").read_text())["trained"] for f in (one, two)]
    assert ids[0] == ids[1]


@pytest.fixture(scope="module")
def alone(folder):
    finished(*train(folder, "many", "alone"), **X64)
    return folder / "alone"


def test_four_devices_train_as_one(folder, alone):
    out, _ = finished(*train(folder, "many", "four", "--devices", 4), **X64)
    assert "members on 4 devices" in out
    near(alone, folder / "four")


@pytest.mark.slow
def test_two_processes_train_as_one(folder, alone):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = train(folder, "many", "two", "--processes", 2, "--coordinator", address, "--process")
    both = [begun(*words, number, **X64) for number in (0, 1)]
    ends = [ended(process) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert "members on 2 devices of 2 processes" in ends[0][0]
    assert "rmse" in ends[0][0] and "rmse" not in ends[1][0]  # process 0 prints
    near(alone, folder / "two")


@pytest.mark.slow
def test_folds_on_devices(folder):
    finished(*train(folder, "few", "crossed"), **X64)
    finished(*train(folder, "few", "crossed-four", "--devices", 4), **X64)
    near(folder / "crossed", folder / "crossed-four")


@pytest.mark.slow
def test_processes_need_the_same_options(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = lambda seed: train(folder, "many", "other", "--seed", seed, "--processes", 2,
                               "--coordinator", address, "--process", seed)  # fmt: skip
    both = [begun(*words(number), **X64) for number in (0, 1)]
    ends = [ended(process) for process in both]
    assert [process.returncode for process in both] == [2, 2], ends
    assert "process 1 has seed = 1, process 0 seed = 0: all need the same command" in ends[1][1]
    assert not (folder / "other").exists()


def test_devices_are_a_count_of_what_is_here(folder, capsys):
    with pytest.raises(SystemExit) as ended_:
        main_with(train(folder, "many", "none", "--devices", 0))
    assert ended_.value.code == 2
    assert "devices must be a whole number from 1; got 0" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="devices must be from 1 to 1, all that are here; got 2"):
        moml.train_table(folder / "many.csv", task="user", target="y", devices=2)


def main_with(words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["moml", *map(str, words)])
        main()
