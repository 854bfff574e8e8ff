"""A disk that is full at any write: one line, the old files as they were, nothing half written."""

import errno
import os
import resource
import shutil
from pathlib import Path

import pytest

from moml.cli.experiments.experiment import Rows
from moml.errors import ConfigError
from moml.report.figures import pyplot, save
from moml.storage.folder import Lock, open_log
from moml.tabular.run import load_table_run
from tests.runs.test_planted import call, content, made  # noqa: F401
from tests.support.small_run import quick  # noqa: F401

FULL = "no space left on device"
TRAIN = ("sine", "--problem.hidden", 4, "--iterations", 20, "--log-every", 10, "--problem.n", 10)
COMMANDS = {  # name: run to copy, words, syncs before the one that fails
    "train": (None, ("train", *TRAIN, "--out", "{out}"), (0, 1, 2, 4)),
    "sweep": (None, ("sweep", *TRAIN, "--seeds", 1, "--out", "{out}"), (1, 3)),
    "resume": ("trained", ("resume", "{run}", "--json", "{out}"), (0,)),
    "score": ("trained", ("score", "{run}", "--json", "{out}"), (0,)),
    "report": ("trained", ("report", "{run}", "--out", "{out}"), (0,)),
    "export": ("table", ("export", "{run}", "--out", "{out}"), (0, 1, 4, 7)),
    "adapt": ("table", ("adapt", "{run}", "--data", "{data}", "--out", "{out}"), (0, 3, 9)),
    "from": ("table", ("train", "--data", "{data}", "--from", "{run}", "--out", "{out}"), (0, 6)),
    "predict": ("table", ("predict", "{run}", "--data", "{data}", "--out", "{out}.csv"), (0,)),
    "forget": ("table", ("forget", "{run}", "--task", "pers\u00f6n-1"), (0, 2, 4, 6, 9)),
    "forget memories": ("trained", ("forget", "{run}", "--task", 1), (0,)),
}


@pytest.fixture
def full(monkeypatch):
    """A function: from now on the disk is full when so many more files have been synced."""
    real = os.fsync

    def fill(left):
        def fsync(handle):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)

    return fill


def hidden(folder):
    return [path for path in folder.rglob(".*") if path.name != ".keep"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_in_a_line_and_leaves_the_old_files(name, made, full, tmp_path, capsys):  # noqa: F811
    source, words, moments = COMMANDS[name]
    run = None if source is None else Path(shutil.copytree(made / source, tmp_path / "run"))
    for left in moments:
        out = tmp_path / f"out{left}"
        given = {"run": run, "out": out, "data": made / "rows.csv"}
        before = {key: told for key, told in content(tmp_path).items() if "lock" not in key}
        full(left)
        code, error = call(capsys, *(str(word).format(**given) for word in words))
        full(10**9)
        assert code == 2 and FULL in error.lower().splitlines()[-1], (left, error)
        assert "Traceback" not in error and hidden(tmp_path) == []
        after = content(tmp_path)
        assert {key: after[key] for key in before if key != "run/log.txt"} == {
            key: told for key, told in before.items() if key != "run/log.txt"
        }
        if name not in ("train", "sweep"):
            assert not [*tmp_path.glob(f"{out.name}*")]
    code, error = call(capsys, *(str(word).format(**given) for word in words))
    if (out / "run.json").exists():
        code, error = call(capsys, "resume", out)
    assert code == 0, error  # with space again


def test_a_run_of_a_table_is_saved_whole_or_not_at_all(made, full, tmp_path):  # noqa: F811
    run = load_table_run(made / "table")
    for left in (0, 1, 5, 8):
        full(left)
        with pytest.raises(ConfigError, match=f"cannot write {tmp_path / 'new'}: {FULL}$"):
            run.save(tmp_path / "new")
        assert [*tmp_path.iterdir()] == []


def test_rows_and_pictures_stay_as_they_were(full, tmp_path, capsys):
    rows = Rows(tmp_path, tmp_path / "rows.json")
    rows.add([{"mean": 1}])
    figure, _ = pyplot().subplots()
    save(figure, tmp_path / "picture.png")
    before = content(tmp_path)
    full(0)
    with pytest.raises(ConfigError, match=f"cannot write .*rows.json: {FULL}"):
        rows.add([{"mean": 2}])
    with pytest.raises(ConfigError, match=f"cannot write .*picture.svg: {FULL}"):
        save(pyplot().subplots()[0], tmp_path / "picture.png")
    pyplot().close("all")
    assert content(tmp_path) == before


def test_a_lock_and_a_log_do_without_space(tmp_path, capsys):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with Lock(tmp_path), open_log(tmp_path) as log:
            log.info("words")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "log.txt").read_text() == "" and capsys.readouterr().err == ""
