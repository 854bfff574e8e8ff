"""`tools/licences.py`: what an install brings in, its licences, and what pip says of it."""

import importlib.util
import subprocess
import sys
from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import pytest

PATH = Path(__file__).parents[1] / "tools" / "licences.py"


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("licences", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_install_brings_in_what_its_packages_need(tool):
    plain, extra, all_ = (tool.brought("moml", e) for e in ((), ("flower",), ("all",)))
    assert {"moml", "jax", "jaxlib", "numpy", "rich", "mdurl"} <= set(plain)
    assert {"flwr", "pyarrow", "pytest"} & set(plain) == set()
    assert set(extra) - set(plain) >= {"flwr", "psutil", "dp-accounting"}
    assert "pillow" not in extra and {"pillow", "pyarrow", "flwr"} <= set(all_)
    assert tool.brought("no-such-package") == {"no-such-package": None}


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"License-Expression": "MIT", "License": "other"}, "MIT"),
        (
            {"Classifier": "License :: OSI Approved :: BSD License", "License": "text"},
            "BSD License",
        ),
        ({"License": "Apache 2.0\n\nmore"}, "Apache 2.0"),
        ({"Classifier": "Typing :: Typed"}, "not stated"),
    ],
)
def test_the_licence_that_is_stated(tool, fields, said):
    about = Message()
    for name, text in fields.items():
        about[name] = text
    assert tool.licence(SimpleNamespace(metadata=about)) == said


def test_the_exit_code_says_whether_all_is_well(tool, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["licences.py"])
    for code in (0, 1):
        answer = subprocess.CompletedProcess([], code, "No broken\nrequirements\n", "")
        monkeypatch.setattr(tool.subprocess, "run", lambda *_, answer=answer, **__: answer)
        assert tool.main() == code
        table, _, check = capsys.readouterr().out.partition("\n\n")
        assert check == "pip check: No broken requirements\n"
        assert table.count("\n") > 10 and "| jax | " in table and "| Apache-2.0 |" in table
    monkeypatch.setattr(tool, "brought", lambda *_: {"lost": None})
    assert tool.main() == 1 and "| lost | - | not installed |" in capsys.readouterr().out
