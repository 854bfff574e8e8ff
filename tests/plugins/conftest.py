"""A user's folder with plugins in it; what they register is gone after the test."""

import shutil
import sys
from pathlib import Path

import pytest

from moml.config.models import MODELS
from moml.config.problems import PROBLEMS
from moml.methods import METHODS
from tests.support.program import call

HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with the plugins of this folder."""
    for file in HERE.glob("my_*.py"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = [(rows, dict(rows)) for rows in (METHODS, PROBLEMS, MODELS)]
    known = set(sys.modules)
    yield tmp_path
    for rows, old in before:
        rows.clear()
        rows.update(old)
        rows.__dict__.pop("_declared", None)
    for name in set(sys.modules) - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def moml_(folder, capsys):
    """The command `moml` in that folder: exit code, output, errors."""
    return lambda *words: call(capsys, *words)
