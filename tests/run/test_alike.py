"""Processes that were told different things, or see different folders: refused by all of them."""

import pytest

from moml.errors import ConfigError, OtherFailed
from moml.run import alike
from moml.run.config import Config
from moml.run.problems import Sine
from moml.run.record import begin
from moml.run.runs import resume, train
from tests.run.teams import each, teams

CONFIG = Config(Sine(), method="moml-v1", eta=0.01, iterations=10, log_every=10, score_every=0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(alike, "SEEN", 0.2)


def begun(folder):
    """The folder of a run that has done nothing yet."""
    folder.mkdir()
    begin(folder, CONFIG, {})


def refused(part, error=ConfigError):
    """The one sentence of both processes."""
    told = each(teams(2)[1], part)
    assert [type(one) for one in told] == [error] * 2, told
    assert str(told[0]) == str(told[1])
    return str(told[0])


def test_another_folder_is_refused_before_the_run_begins(tmp_path):
    told = refused(lambda team: train(CONFIG, tmp_path / str(team.process), team=team))
    place = f"process 1 does not see the folder {tmp_path / '0'} of process 0"
    assert told == f"{place}: all processes need to see the same one"
    assert list(tmp_path.iterdir()) == [tmp_path / "0"]
    assert list((tmp_path / "0").iterdir()) == []  # so that the same command can be given again


def test_another_folder_with_the_same_run_in_it(tmp_path):
    for name in "01":
        begun(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    told = refused(lambda team: resume(tmp_path / str(team.process), team=team))
    assert "process 1 does not see the folder" in told
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_one_process_does_not_find(tmp_path):
    begun(tmp_path / "0")
    first, second = each(teams(2)[1], lambda team: resume(tmp_path / str(team.process), team=team))
    assert isinstance(first, OtherFailed) and str(first) == f"process 1: {second}"
    assert "1 holds no run" in str(second)
