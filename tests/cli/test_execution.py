"""How a process of several ends by an error: with the others, or without them and at once."""

import pytest

from moml.cli import execution
from moml.errors import ConfigError
from moml.runtime.process_group import ProcessGroup
from tests.support.process_groups import Words


@pytest.fixture
def ends(monkeypatch, tmp_path):
    """Process 0 of two that ends by an error, where so many come to the end."""
    monkeypatch.setattr("moml.runs.consistency.assert_same_command", lambda *given: None)
    monkeypatch.setattr("moml.runtime.mesh.mesh", lambda devices: None)
    monkeypatch.setattr(execution, "APART", 0.1)
    gone = []
    monkeypatch.setattr("os._exit", gone.append)

    def end(error, coming):
        words = Words(coming)
        join = lambda *given, **more: ProcessGroup(0, 2, words)
        monkeypatch.setattr("moml.runtime.process_group.join", join)
        start = execution.execution(execution.Execution(), tmp_path / "run")
        with pytest.raises(SystemExit) as code, start:
            raise error
        return gone, code.value.code, words.words

    return end


def test_an_error_of_one_alone_ends_it_with_its_message(ends, capfd):
    gone, _, words = ends(ConfigError("the disk is full"), 2)
    assert gone == [2] and words == {"moml/end/0": "the disk is full"}
    assert capfd.readouterr().err == "moml: the disk is full\n"


def test_a_defect_of_one_alone(ends, capfd):
    assert ends(KeyError("a slip"), 2)[0] == [1]
    assert capfd.readouterr().err.endswith("KeyError: 'a slip'\n")


def test_an_error_of_all_ends_them_in_good_order(ends, capfd):
    assert ends(ConfigError("the disk is full"), 1)[:2] == ([], 2)
    assert capfd.readouterr().err == "moml: the disk is full\n"
