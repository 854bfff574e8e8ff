"""benchmarks/auto_regret.py: wrong words end in one error, before anything is trained."""

import importlib
import json
import sys
from pathlib import Path

import pytest

FIELDS = {"family": "sine", "n": 25, "k": 1, "noise": 0.0, "iterations": 10}
ROW = FIELDS | {"seed": 0, "eta": 0.005, "beta": 1.0, "shots": None, "steps": None, "errors": None}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setenv("NPROC", "1")  # else the script sets it for the tests after this
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("auto_regret")


@pytest.mark.parametrize(
    "words, told",
    [
        ("train", "the following arguments are required: --out"),
        ("train --out OUT --part 2 --of 2", "--part must be below --of; got 2 and 2"),
        ("train --out OUT --part -1", "--part: must be a whole number of at least 0; got -1"),
        ("train --out OUT --of 0", "argument --of: must be a whole number of at least 1; got 0"),
        ("train --out OUT --seeds 1.5", "must be a whole number of at least 1; got 1.5"),
        ("train --out OUT --eta nan", "argument --eta: must be a number above 0; got nan"),
        ("train --out OUT --minutes soon", "must be a number above 0; got soon"),
        ("train --out OUT --shots 3", "argument --shots: invalid choice: 3"),
        ("train --out OUT --family cosine", "argument --family: invalid choice: 'cosine'"),
        ("train --out FILE", "cannot make the folder FILE: File exists"),
        ("cost --turns 0", "argument --turns: must be a whole number of at least 1; got 0"),
        ("table NOWHERE", "cannot read rows from NOWHERE: "),
        ("table FILE", "FILE must have rows of auto_regret.py train; got others"),
        ("table ROWS", "at least one cell must have all its trainings; none has"),
    ],
)  # fmt: skip
def test_wrong_words_are_refused(script, tmp_path, monkeypatch, capsys, words, told):
    for name, rows in (("FILE", [{"mean": 1.0}]), ("ROWS", [ROW])):
        (tmp_path / name).write_text(json.dumps(rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["auto_regret.py", *words.split()])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "OUT").exists()
