"""benchmarks/auto_regret.py: wrong words end in one error, before anything is trained."""

import importlib
import json
import sys
from pathlib import Path

import pytest

PLACE = {"family": "sine", "n": 25, "k": 1, "noise": 0.0, "iterations": 10}
ROW = PLACE | {"seed": 0, "shots": 1, "steps": 1, "error": None}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setenv("NPROC", "1")  # else the script sets it for the tests after this
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("auto_regret")


@pytest.mark.parametrize(
    "words, told",
    [
        ("train", "the following arguments are required: out"),
        ("train OUT --seeds 1.5", "must be a whole number of at least 1; got 1.5"),
        ("train OUT --processes 0", "must be a whole number of at least 1; got 0"),
        ("train OUT --minutes soon", "must be a number above 0; got soon"),
        ("train FILE", "FILE must have rows of auto_regret.py train; got others"),
        ("cost --turns 0", "argument --turns: must be a whole number of at least 1; got 0"),
        ("table NOWHERE FIXED", "NOWHERE"),
        ("table FILE FIXED", "FILE must have rows of auto_regret.py train; got others"),
        ("table ROWS FIXED", "at least one cell must have all its trainings; none has"),
    ],
)  # fmt: skip
def test_wrong_words_are_refused(script, tmp_path, monkeypatch, capsys, words, told):
    for name, rows in (("FILE", [{"mean": 1.0}]), ("ROWS", [ROW])):
        (tmp_path / name).write_text(json.dumps(rows))
    (tmp_path / "FIXED").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["auto_regret.py", *words.split()])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "OUT").exists()
