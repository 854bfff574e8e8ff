"""A run's configuration and metrics are those of its checkpoints; other ones are refused."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import moml
from moml.config.toml import dump, parse
from moml.errors import ConfigError, MomlError
from moml.runs import runs
from moml.runs.record import record_of, save_record
from moml.runs.sweeps import resume_sweep, sweep_run
from tests.runs.test_planted import SINE, call, content

READERS = {
    "resume": ("resume", "{run}"), "score": ("score", "{run}"),
    "report": ("report", "{run}", "--out", "{run}/page.html"),
    "export": ("export", "{run}", "--out", "{run}/new"),
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bound") / "whole"
    runs.train(replace(SINE, keep=9), folder)
    return folder


@pytest.fixture
def run(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "run"))


def unlocked(run):
    return {name: told for name, told in content(run).items() if name not in ("lock", "log.txt")}


def errors(capsys, run):
    """What every reader of a run is told; none changes anything."""
    before = unlocked(run)
    for words in READERS.values():
        code, error = call(capsys, *(word.format(run=run) for word in words))
        assert code == 2, (words, error)
        assert unlocked(run) == before, words
        yield error
    with pytest.raises(MomlError) as refused:
        moml.load(run)
    yield f"moml: {refused.value}\n"


@pytest.mark.parametrize("sealed", [False, True], ids=["edited", "edited with its digest"])
@pytest.mark.parametrize("field, value", [("alpha", 0.5), ("seed", 1)])
def test_a_changed_record_is_refused_by_the_field(run, field, value, sealed, capsys):
    record, config = record_of(run)
    was = config.flat()[field]
    if field == "seed":
        config = replace(config, seed=value)
    else:
        config = replace(config, options=config.options | {field: value})
    (run / "config.toml").write_text(dump(config))
    if sealed:
        save_record(run, record | {"config": dump(config), "seed": config.seed})
    else:
        old = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(old | {"config": dump(config)}))
    place = run / "checkpoints" / "0000000020"
    said = f"moml: {field} is {value} in {run / 'run.json'}, but {was} in {place}: put it back\n"
    assert {*errors(capsys, run)} == {said}
    code, error = call(capsys, "resume", run, "--allow-change", field)
    assert code == 2 and error == said


def test_no_digit_of_a_record_can_change(run):
    text = (run / "run.json").read_text()
    digits = [match.start() for match in re.finditer(r"\d", text)]
    for at in digits[::5]:
        (run / "run.json").write_text(f"{text[:at]}{9 - int(text[at])}{text[at + 1 :]}")
        with pytest.raises(ConfigError, match=r"run\.json|another version") as refused:
            record_of(run)
        assert "\n" not in str(refused.value)
    (run / "run.json").write_text(json.dumps(json.loads(text)))  # in other words, the same
    record_of(run)


def test_changed_metrics_are_refused(run, capsys):
    path = run / "metrics.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"loss":', '"loss":1', 1))
    for error in errors(capsys, run):
        assert f"{path} was changed" in error.splitlines()[-1]
    path.write_text(text + '{"step":30')  # what a kill leaves after a checkpoint
    assert len(moml.load(run).history) == 2
    assert call(capsys, "resume", run)[0] == 0 and path.read_text() == text


def test_what_may_change_goes_on(run, tmp_path, capsys):
    path, before = run / "config.toml", moml.load(run)
    config = parse(path.read_text(), "")
    path.write_text(dump(replace(config, iterations=40)))
    assert call(capsys, "resume", run, "--allow-change", "iterations")[0] == 0
    assert len(moml.load(run).history) == 4
    for step in ("30", "40"):  # killed after the change was noted, before anything was saved
        shutil.rmtree(run / "checkpoints" / f"00000000{step}", ignore_errors=True)
    assert np.array_equal(moml.load(run).history, before.history)
    assert call(capsys, "resume", run)[0] == 0
    assert call(capsys, "forget", run, "--task", 1)[0] == 0
    moved = run.rename(tmp_path / "moved")
    assert call(capsys, "resume", moved)[0] == 0 and len(moml.load(moved).history) == 4
    record = json.loads((moved / "run.json").read_text())
    assert record["forgotten"] == [1] and record["changed"] == [["iterations"]]
    del record["sha256"]
    (moved / "run.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"run\.json was changed"):
        moml.load(moved)


def test_the_grid_of_a_sweep_is_bound(whole, tmp_path, capsys):
    folder = tmp_path / "swept"
    sweep_run(SINE, folder, {"eta": [0.01]}, 1)
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text(text.replace("0.01\n", "0.02\n"))
    assert text != (folder / "run.json").read_text()
    for words in (("resume", folder), ("report", folder, "--out", tmp_path / "page.html")):
        code, error = call(capsys, *words)
        assert code == 2 and error.startswith(f"moml: {folder / 'run.json'} was changed")
    (folder / "run.json").write_text(text)
    metrics = folder / "part-000" / "metrics.jsonl"
    old = metrics.read_text()
    metrics.write_text(old.replace('"loss":[', '"loss":[1', 1))
    code, error = call(capsys, "report", folder, "--out", tmp_path / "page.html")
    assert code == 2 and error.startswith(f"moml: {metrics} was changed")
    metrics.write_text(old)
    resume_sweep(folder)
