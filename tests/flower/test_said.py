"""What Flower says is shown whole, and moves no cursor."""

import json
import os
import subprocess
import sys

import pytest

from moml.cli import run as moml
from moml.cli.flower import _show
from moml.errors import FlowerError, one_line
from moml.flower.local import deploy
from moml.flower.local.folder import environment, places_of


@pytest.fixture
def places(tmp_path):
    moml(["flower", "init", str(tmp_path / "fed")])
    return places_of(tmp_path / "fed")


def flwr_that_answers(monkeypatch, tmp_path, script):
    program = tmp_path / "bin" / "flwr"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setattr(deploy, "environment", lambda places: os.environ | {"PATH": path})
    monkeypatch.setenv("PATH", path)


@pytest.mark.parametrize(
    "script, told",
    [
        ("import json; told = '\\nUnable to find\\nattribute.\\n'\n"
         "print(json.dumps({'success': False, 'error-message': told}))",
         "flwr run: Unable to find attribute."),
        ("import sys; sys.exit('\\n'.join(['one', 'two wrapped\\x1b[2J', 'word.']))",
         r"flwr run: one two wrapped\x1b[2J word."),
        ("", "flwr run: no answer"),
    ],
)  # fmt: skip
def test_what_flower_says_is_shown_whole(places, monkeypatch, tmp_path, script, told):
    flwr_that_answers(monkeypatch, tmp_path, script)
    with pytest.raises(FlowerError) as raised:
        deploy.flwr(places, "run")
    assert str(raised.value) == told


def test_an_app_that_flower_refuses_is_named(places, capfd):
    file = places.root / "pyproject.toml"
    file.write_text(file.read_text().replace("client_app:app", "client_app:other"))
    with pytest.raises(FlowerError, match=r"flwr run: Invalid Flower App .*find attribute other"):
        deploy.flwr(places, "run", str(places.root), "moml")


def test_no_reason_moves_the_cursor(capsys):
    failed = {"partition": 1, "tasks": [4], "reason": "a\x1b[2J\x07b"}
    row = {"round": 1, "rounds": 2, "drawn": 9, "answered": 6, "seconds": 1.0, "epsilon": None}
    _show(row | {"loss": None, "before": None, "after": None, "failed": [failed]})
    out = capsys.readouterr().out
    assert "6/9" in out and r"a\x1b[2J\x07b" in out and "\x1b" not in out
    assert one_line("a\x1b]0;b\n\x9bc" * 99, 10) == r"a\x1b]0;b \x9bca"


def test_answers_are_read_where_colours_are_forced(places, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as Jupyter does
    script = """from rich import print_json; print_json('{"success": true}')"""
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, env=environment(places), capture_output=True, text=True)
    assert json.loads(done.stdout) == {"success": True}
