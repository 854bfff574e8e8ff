"""How a process of several ends by an error: with the others, or without them and at once."""

import pytest

from moml.cli import execution as together
from moml.errors import ConfigError
from moml.runtime.process_group import Team
from tests.support.process_groups import Words


@pytest.fixture
def ends(monkeypatch, tmp_path):
    """Process 0 of two that ends by an error, where so many come to the end."""
    monkeypatch.setattr("moml.runs.consistency.same_command", lambda *given: None)
    monkeypatch.setattr(together, "_mesh", lambda devices: None)
    monkeypatch.setattr(together, "ALL_END", 0.1)
    gone = []
    monkeypatch.setattr("os._exit", gone.append)

    def end(error, coming):
        words = Words(coming)
        monkeypatch.setattr("moml.runtime.join.join", lambda *given, **more: Team(0, 2, words))
        with together.where(together.Together(), tmp_path / "run"):
            raise error
        return gone, words.words

    return end


def test_an_error_of_one_alone_ends_it_with_its_sentence(ends, capfd):
    assert ends(ConfigError("the disk is full"), 2) == ([2], {"moml/end/0": "the disk is full"})
    assert capfd.readouterr().err == "moml: the disk is full\n"


def test_a_slip_of_one_alone(ends, capfd):
    assert ends(KeyError("a slip"), 2)[0] == [1]
    assert capfd.readouterr().err.endswith("KeyError: 'a slip'\n")


def test_an_error_of_all_ends_them_in_good_order(ends, capfd):
    with pytest.raises(ConfigError, match="the disk is full"):
        ends(ConfigError("the disk is full"), 1)
    assert capfd.readouterr().err == ""
