import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import moml
from tests.support.program import call, refused

ROW = {
    "table", "dataset", "setting", "method", "protocol", "metric", "mean", "std", "values",
    "seeds", "lost", "paper_mean", "paper_std", "samples", "iterations", "seconds",
}  # fmt: skip


def run(*arguments: str, **given):
    """The program as a user starts it, in a process of its own."""
    command = [sys.executable, "-c", "from moml.cli import main; main()", *arguments]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, **given
    )


def test_demo_leaves_a_table_rows_and_a_picture(tmp_path):
    out, rows_file = tmp_path / "new" / "folder", tmp_path / "rows.json"
    done = run(
        "demo", "--out", str(out), "--json", str(rows_file), "--iterations", "40", "--seeds", "2"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(rows_file.read_text())
    assert [row["method"] for row in rows] == ["untrained", "maml", "moml-v1", "moml"]
    for row in rows:
        assert set(row) == ROW
        assert row["seeds"] == 2
        assert row["mean"] > 0
    assert rows[0]["samples"] == 0
    assert rows[1]["samples"] == 40 * 3 * 2
    for picture in ("demo.png", "demo.svg"):
        assert (out / picture).stat().st_size > 5000
        assert picture.replace("svg", "png") in done.stdout
    assert "untrained" in done.stdout
    assert "120/120" in done.stderr  # progress, as lines where there is no terminal
    assert not list(tmp_path.rglob("*.partial"))


def test_tables_leave_rows_and_pictures(tmp_path):
    small = ["--seeds", "2", "--iterations", "60"]
    done = run("reproduce", "sine", "--methods", "maml", "moml", "--k", "1", *small, "--out",
               str(tmp_path / "sine"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "sine" / "rows.json").read_text())
    assert [row["method"] for row in rows] == ["maml", "moml"]
    assert all(set(row) == ROW for row in rows)
    assert rows[0]["paper_mean"] == 0.889
    shots = run("reproduce", "shots", "--k", "1", *small, "--out", str(tmp_path / "shots"))
    assert shots.returncode == 0, shots.stderr
    rows = json.loads((tmp_path / "shots" / "rows.json").read_text())
    assert all(set(row) == ROW for row in rows)
    again = run("reproduce", "shots", "--rows", str(tmp_path / "shots" / "rows.json"), "--out",
                str(tmp_path / "again"))  # fmt: skip
    verdicts = lambda text: [line for line in text.splitlines() if "cells" in line]
    assert verdicts(again.stdout) == verdicts(shots.stdout)
    theory = run("reproduce", "theory", "--methods", "maml", *small, "--out", str(tmp_path / "th"))
    assert theory.returncode == 0, theory.stderr
    pictures = {path.name for path in tmp_path.rglob("*.png")}
    assert {"objective-strict.png", "fitted-strict.png", "shots.png", "theory.png"} <= pictures


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["demo", "--iterations", "0"], ["iterations", "0"]),
        (["demo", "--seeds", "-1"], ["seeds", "-1"]),
        (["demo", "--out", "/proc/nowhere"], ["/proc/nowhere"]),
        (["demo", "--json", "/proc/nowhere/rows.json"], ["/proc/nowhere"]),
        (["reproduce", "sine", "--methods", "nosuch"], ["nosuch", "moml-v1"]),
        (["reproduce", "sine", "--protocol", "nosuch"], ["nosuch", "released"]),
        (["reproduce", "sine", "--k", "0"], ["k", "0"]),
        (["reproduce", "sine", "--k", "7"], ["k = 7"]),
        (["reproduce", "sine", "--seeds", "-1"], ["seeds", "-1"]),
        (["reproduce", "sine", "--iterations", "0"], ["iterations", "0"]),
        (["reproduce", "sine", "--out", "/proc/nowhere"], ["/proc/nowhere"]),
        (["reproduce", "shots", "--k", "0"], ["k", "0"]),
        (["reproduce", "shots", "--rows", "nosuch.json"], ["nosuch.json"]),
        (["reproduce", "theory", "--methods", "nosuch"], ["nosuch", "maml"]),
        (["reproduce", "theory", "--seeds", "0"], ["seeds", "0"]),
        (["reproduce", "search", "--k", "0"], ["k", "0"]),
        (["reproduce", "sine", "--methods"], ["methods"]),
        (["reproduce", "sine", "--protocol"], ["protocol"]),
        (["reproduce", "theory", "--methods"], ["methods"]),
        (["demo", "--json", "/proc"], ["/proc"]),
    ],
)
def test_a_users_mistake_is_one_line_and_code_2(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = refused(capsys, *arguments)
    for word in words:
        assert word in error
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("arguments", [["demoo"], ["reproduce", "nosuch"], ["demo", "--sedes"]])
def test_a_misspelt_command_is_code_2(arguments, capsys):
    code, _, error = call(capsys, *arguments)
    assert code == 2 and arguments[-1] in error


def test_divergence_has_a_code_of_its_own(capsys, monkeypatch):
    def diverge(command):
        raise moml.errors.Diverged("maml (seed 0) diverged at step 3 of 9")

    monkeypatch.setattr("moml.cli.demo.demo", diverge)
    code, _, error = call(capsys, "demo")
    assert code == 3 and "step 3" in error


def test_methods_and_version(capsys):
    _, out, _ = call(capsys, "methods")
    listed = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert listed == {name: moml.methods.summary(name) for name in moml.methods.METHODS}
    assert moml.__version__ in call(capsys, "--version")[1]


def test_interrupted_by_the_user(tmp_path):
    handler = "import signal as s; s.signal(s.SIGINT, s.default_int_handler)"  # even if ignored
    command = [sys.executable, "-c", f"{handler}; from moml.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "demo", "--out", str(tmp_path / "demo"), "--iterations", "4000000"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XLA_FLAGS": ""},  # with the compiler options of users
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "demo").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    try:
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error.splitlines()[-1] == "moml: interrupted"
    assert "Traceback" not in error


def test_the_readme_runs():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) >= 4
    script = "\n".join(blocks).replace("test_steps=10)", "test_steps=10, iterations=200)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "of 12 diverged" in done.stdout
