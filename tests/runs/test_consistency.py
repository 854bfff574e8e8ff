"""Processes that were told different things, or see different folders: refused by all of them."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from moml.config.config import Config
from moml.config.problems import Episodes, Sine
from moml.config.problems import episodes as problem
from moml.errors import ConfigError, DataError, OtherFailed
from moml.runs import consistency, runs
from moml.runs.consistency import assert_same_command, assert_same_data
from moml.runs.job import plan_of
from moml.runs.record import begin
from moml.tasks import from_arrays
from tests.support.process_groups import each, process_groups
from tests.support.small_mnist import LATE

CONFIG = Config(Sine(), method="moml-v1", eta=0.01, iterations=10, log_every=10, score_every=0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(consistency, "VISIBLE", 0.2)


def begun(folder):
    """The folder of a run that has done nothing yet."""
    folder.mkdir()
    begin(folder, CONFIG, {})


def refused(part, error=ConfigError):
    """The one sentence of both processes."""
    told = each(process_groups(2)[1], part)
    assert [type(one) for one in told] == [error] * 2, told
    assert str(told[0]) == str(told[1])
    return str(told[0])


@pytest.mark.parametrize(
    "change, told",
    [
        ({"log_every": 5}, "process 1 has log_every = 5, process 0 log_every = 10"),
        ({"eta": 0.02}, "process 1 has eta = 0.02, process 0 eta = 0.01"),
        ({"memory_dtype": "float32"}, "process 1 has memory_dtype = float32, process 0 no mem"),
        ({"problem": Sine(n=30)}, "process 1 has problem.n = 30, process 0 problem.n = 25"),
    ],
)
def test_another_configuration_is_refused(tmp_path, monkeypatch, change, told):
    monkeypatch.setattr(runs, "resolved", lambda config, plan: config)  # what takes time
    config = lambda group: replace(CONFIG, **change) if group.process else CONFIG
    words = refused(lambda group: runs.train(config(group), tmp_path / "run", group=group))
    assert words.startswith(told) and words.endswith(": all need the same command")
    assert not (tmp_path / "run").exists()


def test_other_data_are_refused():
    """The same configuration, of files that are not the same on all machines."""
    plans = [plan_of(replace(CONFIG, problem=Sine(n=n))) for n in (25, 24)]
    part = lambda group: assert_same_data(group, plans[group.process], None)
    assert refused(part) == "process 1 has n = 24, process 0 n = 25: all need the same data"
    few = lambda size: from_arrays(np.zeros((25, 4, 1)), np.zeros((25, 4, 1)), np.full(25, size))
    sized = lambda group: plans[0]._replace(
        built=plans[0].built._replace(tasks=few(3 + group.process))
    )
    part = lambda group: assert_same_data(group, sized(group), None)
    assert "process 1 has sizes = " in refused(part)
    part = lambda group: assert_same_data(group, plans[0], {"w": np.full(3, group.process)})
    assert "process 1 has w = " in refused(part)


@pytest.mark.parametrize("config", [
    LATE,
    replace(CONFIG, method="bspiderboost"),
    Config(Episodes(ways=3, model="mlp", hidden=(4,)), method="maml", test_tasks=5),
])  # fmt: skip
@pytest.mark.usefixtures("data")
def test_the_same_data_are_not_refused(config, monkeypatch):
    images = np.zeros((18, 20, 8, 8, 1), np.uint8)
    monkeypatch.setattr(problem, "classes_of", lambda p: (images[:12], images[12:]))
    plan = plan_of(config)
    part = lambda group: assert_same_data(group, plan, plan.built.init(jax.random.key(0)))
    assert each(process_groups(2)[1], part) == [None] * 2


def test_another_command_is_refused():
    part = lambda group: assert_same_command(group, ["train", "resume"][group.process], None)
    told = "process 1 has command = resume, process 0 command = train: all need the same command"
    assert refused(part) == told
    part = lambda group: assert_same_command(group, "train", 3 if group.process else None)
    assert refused(part) == (
        "process 1 has devices = 3, process 0 no devices: all need the same command"
    )


def test_data_that_one_process_does_not_find(tmp_path, monkeypatch):
    def resolved(config, plan):
        if config.seed:
            raise DataError("there is no table here")
        return config

    monkeypatch.setattr(runs, "resolved", resolved)
    config = lambda group: replace(CONFIG, seed=group.process)
    part = lambda group: runs.train(config(group), tmp_path / "run", group=group)
    first, second = each(process_groups(2)[1], part)
    assert isinstance(first, OtherFailed) and str(first) == "process 1: there is no table here"
    assert isinstance(second, DataError)


def test_another_folder_is_refused_before_the_run_begins(tmp_path):
    told = refused(lambda group: runs.train(CONFIG, tmp_path / str(group.process), group=group))
    place = f"process 1 does not see the folder {tmp_path / '0'} of process 0"
    assert told == f"{place}: all need the same folder"
    assert list(tmp_path.iterdir()) == [tmp_path / "0"]
    assert list((tmp_path / "0").iterdir()) == []  # so that the same command can be given again


def test_another_folder_with_the_same_run_in_it(tmp_path):
    for name in "01":
        begun(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    told = refused(lambda group: runs.resume(tmp_path / str(group.process), group=group))
    assert "process 1 does not see the folder" in told
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_one_process_does_not_find(tmp_path):
    begun(tmp_path / "0")
    first, second = each(
        process_groups(2)[1], lambda group: runs.resume(tmp_path / str(group.process), group=group)
    )
    assert isinstance(first, OtherFailed) and str(first) == f"process 1: {second}"
    assert "1 holds no run" in str(second)
