"""Lines on the terminal: nothing in a name controls it, ASCII is enough, memory ends in a line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import moml
from moml import cli
from moml.cli.validation import say
from moml.errors import DataError, MomlWarning, printable
from moml.report.terminal import print_scores, print_table

EVIL = "name\x1b[31m\r\n\x9b2J\u202e\udcff"
SAFE = r"name\x1b[31m\r\n\x9b2J\u202e\udcff"
PACKAGE = Path(moml.__file__).parent
MAIN = "from moml.cli import main; main()"


def raising(error):
    def run(arguments):
        raise error

    return run


def ended(monkeypatch, capfd, error):
    """The exit code and the standard error of a command that raises."""
    monkeypatch.setattr(cli, "run", raising(error))
    monkeypatch.setattr(sys, "argv", ["moml", "doctor"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, capfd.readouterr().err


def test_text_is_printable_in_one_line():
    assert printable(EVIL) == SAFE
    assert printable("naïve 数 \\n") == "naïve 数 \\n"
    assert printable("a" * 3000) == "a" * 2000 + "..."


def test_errors_and_lines_do_not_control_the_terminal(monkeypatch, capfd):
    assert ended(monkeypatch, capfd, DataError(f"no column {EVIL}")) == (
        2, f"moml: no column {SAFE}\n"
    )  # fmt: skip
    say(f"folder: {Path(EVIL)}")
    assert capfd.readouterr().out == f"folder: {SAFE}\n"


def test_tables_show_names_as_they_are(capsys):
    print_table(EVIL, ["model", "[red]1[/]"], [["[/b]", EVIL]])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    for word in (SAFE, "[red]1[/]", "[/b]"):
        assert word in out
    row = {"metric": "rmse", "tasks": 1, "rows": 2, "shots": 0, "model": "m", "mean": 1, "std": 0}
    print_scores([row], EVIL)
    assert f"rmse of {SAFE} by known rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 9 GiB"),
        RuntimeError("can't start new thread"),
        RuntimeError("RESOURCE_EXHAUSTED: out of memory\nallocating 9 bytes"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_too_little_memory_ends_in_a_line(monkeypatch, capfd, error):
    code, text = ended(monkeypatch, capfd, error)
    assert code == 2
    assert text.startswith("moml: not enough memory: ") and text.count("\n") == 1


def test_other_errors_are_defects(monkeypatch, capfd):
    monkeypatch.setattr(cli, "run", raising(RuntimeError("a defect")))
    monkeypatch.setattr(sys, "argv", ["moml", "doctor"])
    with pytest.raises(RuntimeError, match="a defect"):
        cli.main()


def test_a_limit_under_which_xla_aborts_is_refused():
    limited = ["sh", "-c", 'ulimit -v 1048576; exec "$@"', "sh"]
    command = [*limited, sys.executable, "-c", MAIN, "doctor"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    said = "moml: not enough memory: ulimit -v must be 1536000 kB or more, for JAX to start; got "
    assert done.stderr == f"{said}1048576\n"


def test_our_warnings_are_a_line(monkeypatch, capsys):
    cli._show_warning(lambda *given: print("python's"), MomlWarning(EVIL), MomlWarning, "file", 1)
    cli._show_warning(lambda *given: print("python's"), UserWarning("x"), UserWarning, "file", 1)
    assert capsys.readouterr() == ("python's\n", f"moml: warning: {SAFE}\n")


def test_ascii_is_enough(tmp_path):
    name = tmp_path / "größe\udcff.csv"
    ascii_only = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", MAIN]
    options = ["--data", str(name), "--task", "é", "--target", "y", "--out", str(tmp_path / "run")]
    for words, code in ((["methods"], 0), (["--help"], 0), (["train", *options], 2)):
        done = subprocess.run(
            [*command, *words], capture_output=True,
            env=os.environ | ascii_only | {"PYTHONCOERCECLOCALE": "0"},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
        assert (done.stdout + done.stderr).isascii()


def test_texts_are_read_as_utf8():
    rooms = ("cli", "config", "data", "paper", "report", "runtime", "tabular", "training")
    for path in (path for room in rooms for path in (PACKAGE / room).rglob("*.py")):
        assert ".read_text()" not in path.read_text("utf-8"), path
