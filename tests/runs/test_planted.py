"""A run that somebody else made: links and pipes in it are neither followed nor waited for."""

import os
import re
import shutil
import signal
import socket
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import moml
from moml.config.starts import STARTS
from moml.data.table.write import write_table
from moml.errors import ConfigError, MomlError
from moml.runs import runs
from moml.runs.sweeps import sweep_run
from moml.serving.forget import forget
from moml.storage.folder import Lock, check_plain
from tests.support.program import call as program
from tests.support.small_run import quick, small_run, visits  # noqa: F401

SINE = replace(STARTS["sine"], iterations=20, log_every=10, score_every=0, test_tasks=2)
SINE = replace(SINE, problem=replace(SINE.problem, hidden=(4,), n=10), save_seconds=0.0)
KINDS = ("link", "link to a folder", "dangling", "pipe")
STEP = "checkpoints/0000000020"
TRAINED = (
    "lock", "log.txt", "logs.json", "metrics.jsonl", "run.json", "config.toml", "checkpoints",
    STEP, f"{STEP}/info.json", f"{STEP}/manifest.json", f"{STEP}/state.safetensors", f"{STEP}/new",
    "checkpoints/.writing-0000000020", "checkpoints/.old-0000000010",
    "checkpoints/.swapped-0000000010", "checkpoints/.x.partial", "memory", "memory/lock",
    "memory/about.json", "memory/rows", "memory/undo-0000000020-5f0c3a9e", "tensorboard",
    "tensorboard/events.out.tfevents.1",
)  # fmt: skip
SWEPT = ("part-000", "part-000/log.txt", "part-000/metrics.jsonl", f"part-000/{STEP}")
TABLE = ("table.json", "manifest.json", "model.safetensors", "tasks.json", "personal.safetensors",
         "evaluation.json", "residuals.safetensors", "more")  # fmt: skip
EACH = ("index.json", "tasks", "tasks/000001.safetensors")  # as `moml adapt` leaves them
WORK = (".run.forget", ".run.forget/new", ".run.forget/old", ".run.forget/lock")


@pytest.fixture(scope="module")
def made(tmp_path_factory, quick):  # noqa: F811
    """A run with its memories on disk, a sweep, and the run of a table."""
    folder = tmp_path_factory.mktemp("made")
    runs.train(replace(SINE, memory="disk"), folder / "trained")
    sweep_run(SINE, folder / "swept", {"eta": [0.01]}, 1)
    rows = visits(4, 0)
    small_run(folder / "table", rows, ["summary"])
    small_run(folder / "models", rows, ["summary"], each=True)
    write_table(rows, folder / "rows.csv")
    return folder


@pytest.fixture
def run(made, tmp_path):
    return lambda name: Path(shutil.copytree(made / name, tmp_path / "run"))


def plant(path, kind, outside):
    """Replace a path; a link leads to what was there, or to other files of the user."""
    (outside / "mine").mkdir(parents=True)
    (outside / "mine" / "thesis").write_text("text")
    (outside / "thesis").write_text("text")
    path.parent.mkdir(parents=True, exist_ok=True)
    target = outside / {"link": "thesis", "link to a folder": "mine"}.get(kind, "nowhere")
    if path.exists():
        target = target if kind != "link" else outside / "moved"
        path.rename(outside / "moved")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)


def content(folder):
    """Every entry below a folder: what it is, where it leads, its bytes."""
    told = {}
    for path in sorted(folder.rglob("*")):
        plain = path.is_file() and not path.is_symlink()
        leads = os.readlink(path) if path.is_symlink() else None
        told[str(path.relative_to(folder))] = leads, path.read_bytes() if plain else None
    return told


@contextmanager
def not_for_ever():
    """A command that waits for a pipe ends here, with an error."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(capsys, *words):
    """Exit code and errors of a command."""
    capsys.readouterr()
    with not_for_ever():
        code, _, error = program(capsys, *words)
    return code, error


def refused(capsys, run, before, commands):
    """All commands end in a line with code 2, and change nothing."""
    for words in commands:
        code, error = call(capsys, *words)
        assert code == 2, (words, error)
        assert error.startswith("moml: ") and error.count("\n") == 1, (words, error)
        assert content(run.parent) == before, words
        yield error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TRAINED)
def test_no_command_on_a_run_touches_what_a_link_leads_to(run, name, kind, tmp_path, capsys):
    run = run("trained")
    plant(run / name, kind, tmp_path / "outside")
    before, out = content(tmp_path), tmp_path / "out"
    commands = [
        ("resume", run), ("score", run), ("export", run, "--out", out),
        ("report", run, "--out", out), ("forget", run, "--task", 1),
    ]  # fmt: skip
    for error in refused(capsys, run, before, commands):
        what = "a pipe" if kind == "pipe" else "a link"
        assert name == "run.json" or re.fullmatch(
            rf"moml: a run must .* plain files; {run / name} is {what}\n", error
        )
    with pytest.raises(MomlError), not_for_ever():
        moml.load(run)
    assert content(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_nor_does_a_run_that_begins_there(kind, tmp_path, capsys):
    words = ("--problem.hidden", 4, "--iterations", 20, "--log-every", 10)
    for name in ("lock", "log.txt", "metrics.jsonl", "run.json", "checkpoints"):
        plant(tmp_path / name / "run" / name, kind, tmp_path / name / "outside")
        before = content(tmp_path)
        for command in ("train", "sweep"):
            given = (command, "sine", "--out", tmp_path / name / "run", *words)
            [error] = refused(capsys, tmp_path / name, before, [given])
            assert f"{name} is a" in error
        assert content(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SWEPT)
def test_nor_does_a_command_on_a_sweep(run, name, kind, tmp_path, capsys):
    run = run("swept")
    plant(run / name, kind, tmp_path / "outside")
    out = tmp_path / "out"
    commands = [("resume", run), ("report", run, "--out", out), ("forget", run, "--task", 1)]
    for error in refused(capsys, run, content(tmp_path), commands):
        assert f"{run / name} is a" in error


def test_the_rows_of_a_sweep_replace_a_link(run, tmp_path, capsys):
    run = run("swept")
    plant(run / "rows.json", "link", tmp_path / "outside")
    before = content(tmp_path / "outside")
    assert call(capsys, "resume", run)[0] == 0
    assert content(tmp_path / "outside") == before
    assert not (run / "rows.json").is_symlink()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", (*TABLE, *EACH, *WORK))
def test_nor_does_a_command_on_the_run_of_a_table(made, run, name, kind, tmp_path, capsys):
    run = run("models" if name in EACH else "table")
    data, out = made / "rows.csv", tmp_path / "out.csv"
    plant((run.parent if name in WORK else run) / name, kind, tmp_path / "outside")
    before = content(tmp_path)
    reading = [
        ("evaluate", run), ("predict", run, "--data", data, "--out", out),
        ("adapt", run, "--data", data, "--out", out), ("export", run, "--out", out),
        ("report", run, "--out", out), ("train", "--data", data, "--from", run, "--out", out),
    ]  # fmt: skip
    forgetting = ("forget", run, "--task", "pers\u00f6n-1")
    [*refused(capsys, run, before, [forgetting] if name in WORK else [forgetting, *reading])]
    if name not in WORK:
        with pytest.raises(MomlError), not_for_ever():
            moml.load(run)


def test_a_run_may_be_reached_through_a_link(made, run, tmp_path, capsys):
    (tmp_path / "name").symlink_to(run("trained"))
    assert call(capsys, "resume", tmp_path / "name")[0] == 0
    assert call(capsys, "forget", tmp_path / "name", "--task", 1)[0] == 0
    shutil.copytree(made / "table", tmp_path / "table")
    (tmp_path / "other").symlink_to(tmp_path / "table")
    forget(tmp_path / "other", ["pers\u00f6n-1"])
    assert (tmp_path / "other").is_symlink()


def test_sockets_are_refused_and_other_names_are_left_alone(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/usr/bin/env")
    (tmp_path / "notes").symlink_to("nowhere")
    check_plain(tmp_path)
    check_plain(tmp_path / "none")
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("lock")
        with pytest.raises(ConfigError, match="lock is a socket"), Lock(tmp_path):
            pass


@pytest.mark.parametrize("name", ["rounds.jsonl", "privacy.json", "w.safetensors", "run.json"])
def test_so_are_pipes_in_the_folder_of_a_server(name, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match=f"{re.escape(name)} is a pipe"), Lock(tmp_path):
        pass


def test_a_file_that_is_no_lock_is_not_written_over(tmp_path):
    (tmp_path / "lock").write_text("packages = []\n")
    with pytest.raises(ConfigError, match="must be the lock of a run"), Lock(tmp_path):
        pass
    assert (tmp_path / "lock").read_text() == "packages = []\n"
