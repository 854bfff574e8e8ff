import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from moml.config.config import Config
from moml.config.problems import Sine
from moml.errors import ConfigError, Interrupted
from moml.runs import runs, session, sweeps
from moml.runs.record import record_of
from moml.storage.metrics import read
from tests.storage.test_checkpoint import files_of
from tests.support.processes import begun, ended, finished, last_state, lines, names, until
from tests.support.program import call

SMALL = Config(
    Sine(hidden=(8,)), method="moml-v1", iterations=200, log_every=50, score_every=100,
    save_seconds=0.0, test_tasks=20, test_steps=2, decay_after=1.0,
)  # fmt: skip
GRID = {"eta": [0.002, 1e30, 0.01]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sweep to its end, in one part, and its rows."""
    folder = tmp_path_factory.mktemp("sweeps") / "whole"
    _, rows = sweeps.sweep_run(SMALL, folder, GRID, 2)
    return folder, rows


def test_the_best_is_first_and_the_lost_are_last(whole):
    folder, rows = whole
    assert names(folder, "part-*") == ["part-000"]
    assert [row["lost"] for row in rows] == [0, 0, 2]
    assert rows[0]["mean"] < rows[1]["mean"] and rows[2]["mean"] is None
    assert rows[2]["setting"]["eta"] == 1e30 and all(row["seeds"] == 2 for row in rows)
    last = read(folder / "part-000" / "metrics.jsonl")[-1]
    assert last["score"][2:4] == [None, None] and last["loss"][2:4] == [None, None]
    best = {0.002: last["score"][:2], 0.01: last["score"][4:]}[rows[0]["setting"]["eta"]]
    assert rows[0]["mean"] == np.mean(best) and rows[0]["std"] == np.std(best)


def test_a_member_is_the_run_of_its_own(whole, tmp_path):
    folder, _ = whole
    runs.train(replace(SMALL, eta=0.01, seed=1), tmp_path / "run")
    alone = [row["score"] for row in read(tmp_path / "run" / "metrics.jsonl")]
    member = [row["score"] for row in read(folder / "part-000" / "metrics.jsonl")]
    assert alone[-1] == pytest.approx(member[-1][5], rel=1e-4)
    one, all_ = last_state(tmp_path / "run"), last_state(folder, part=0)
    for name, (kind, shape, data) in one.items():
        _, _, wide = all_[".state" + name]
        mine = np.frombuffer(wide, kind).reshape(6, *shape)[5]
        np.testing.assert_allclose(np.frombuffer(data, kind).reshape(shape), mine, 1e-4, 1e-5)


def test_it_is_split_by_the_memory_there_is(whole, tmp_path, capsys):
    _, rows = whole
    grid = "eta=" + ",".join(map(str, GRID["eta"]))
    words = ["--method", "moml-v1", "--problem.hidden", "8", "--iterations", "200"]
    words += ["--log-every", "50", "--score-every", "100", "--save-seconds", "0"]
    words += ["--test-tasks", "20", "--test-steps", "2", "--decay-after", "1"]
    words = ["sweep", "sine", "--out", tmp_path / "many", "--grid", grid, "--seeds", "2", *words]
    words += ["--memory-gb", "1e-9"]
    code, out, error = call(capsys, *words)
    assert code == 0, error
    assert "the best first" in out
    assert len(names(tmp_path / "many", "part-*")) == 6
    assert record_of(tmp_path / "many")[0]["members"] == 1
    split = json.loads((tmp_path / "many" / "rows.json").read_text())
    for one, two in zip(split, rows, strict=True):
        assert one["setting"] == two["setting"] and one["lost"] == two["lost"]
        told = two["mean"]
        assert one["mean"] == (None if told is None else pytest.approx(told, rel=1e-4))
    assert (tmp_path / "many" / "config.toml").read_text() == (whole[0] / "config.toml").read_text()


def test_how_many_fit_is_what_the_compiler_says(monkeypatch):
    config, asked = runs.resolved(SMALL), []

    def bytes_of(program, state, tasks, keys, hyper, length):
        assert {leaf.shape[0] for leaf in jax.tree.leaves((state, hyper))} == {keys.shape[0]}
        asked.append(keys.shape[0])
        return 100 + 10 * keys.shape[0]

    monkeypatch.setattr(sweeps, "bytes_of", bytes_of)
    plan = sweeps.plan_of(config)
    fit = lambda members, room: sweeps.members_that_fit(plan, config, members, room)
    assert fit(6, None) == 6 and fit(1, 0.0) == 1 and asked == []
    assert fit(6, 160.0) == 6 and fit(6, 159.0) == 5 and fit(50, 200.0) == 10 and fit(6, 1.0) == 1


@pytest.mark.parametrize(
    "words, told",
    [
        (["--grid", "eta="], "eta="),
        (["--grid", "eta"], "'eta'"),
        (["--grid", "eta=.1,x"], "eta=.1,x"),
        (["--grid", "eta=.1", "eta=.2"], "eta is given twice"),
        (["--grid", "nosuch=1"], "nosuch"),
        (["--grid", "seed=1,2"], "seed"),
        (["--grid", "beta=2"], "beta"),
        (["--grid", "eta=nan"], "eta"),
        (["--grid", "eta=.1", "--seeds", "0"], "seeds"),
        (["--memory-gb", "0"], "memory_gb"),
        (["--memory-gb", "nan"], "memory_gb"),
        (["--method", "maml", "--grid", "beta=.1,.2"], "lists for eta, alpha"),
    ],
)
def test_a_bad_grid_leaves_nothing_behind(words, told, tmp_path, capsys):
    small = ["--problem.hidden", "8"]
    code, _, error = call(capsys, "sweep", "sine", "--out", tmp_path / "out", *small, *words)
    assert code == 2 and error.startswith("moml: ") and error.count("\n") == 1
    assert told in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone(whole, tmp_path, capsys):
    folder = Path(shutil.copytree(whole[0], tmp_path / "copy"))
    before = files_of(folder / "part-000")
    small = ["--problem.hidden", "8", "--iterations", "50", "--log-every", "50"]
    small += ["--score-every", "0", "--method", "moml-v1"]
    code, _, error = call(capsys, "sweep", "sine", "--out", folder, "--seeds", 1, *small)
    assert code == 2 and f"holds a run already; go on with: moml resume {folder}" in error
    code, _, error = call(capsys, "train", "sine", "--out", folder, *small)
    assert code == 2 and "holds a run already" in error
    assert files_of(folder / "part-000") == before
    with pytest.raises(ConfigError, match="holds a sweep, not one model"):
        runs.load(folder)


def test_a_sweep_takes_an_allowed_change(whole, tmp_path, capsys):
    folder = Path(shutil.copytree(whole[0], tmp_path / "copy"))
    path = folder / "config.toml"
    path.write_text(path.read_text().replace("iterations = 200", "iterations = 300"))
    code, _, error = call(capsys, "resume", folder)
    assert code == 2 and "iterations was 200" in error
    code, _, error = call(capsys, "resume", folder, "--allow-change", "iterations")
    assert code == 0, error
    rows = read(folder / "part-000" / "metrics.jsonl")
    assert rows[:4] == read(whole[0] / "part-000" / "metrics.jsonl") and rows[-1]["step"] == 300
    record, _ = record_of(folder)
    assert record["changed"] == [["iterations"]] and record["members"] == 6
    told = json.loads((folder / "rows.json").read_text())
    assert [row["iterations"] for row in told] == [300] * 3


def test_a_signal_in_the_last_stretch_of_a_part_is_not_lost(tmp_path, monkeypatch):
    ends, folder = [], tmp_path / "run"

    def many(*given):
        job = sweeps_many(*given)
        advance = job.execution.advance

        def stopped(carry, begin, size):
            if begin + size == job.plan.steps and not ends:
                ends.append(begin)
                os.kill(os.getpid(), signal.SIGTERM)
            return advance(carry, begin, size)

        job.execution.advance = stopped
        return job

    sweeps_many = sweeps.many
    monkeypatch.setattr(sweeps, "many", many)
    monkeypatch.setattr(sweeps, "members_that_fit", lambda *_: 1)
    with pytest.raises(Interrupted, match=f"at step 200 of 200.*moml resume {folder}$") as told:
        sweeps.sweep_run(SMALL, folder, {"eta": [0.002, 0.01]}, 1)
    assert told.value.exit_code == 143 and names(folder, "part-*") == ["part-000"]
    _, rows = sweeps.resume_sweep(folder)
    assert len(rows) == 2 and sorted(names(folder, "part-*")) == ["part-000", "part-001"]


def test_a_signal_after_the_save_was_decided_waits_for_the_next_line(tmp_path, monkeypatch):
    """What is said to be saved is: a signal between the two questions must not be half heard."""

    class Late(session.Checkpoints):
        def save(self, step, *given):
            super().save(step, *given)
            self.wait()
            if step == 50:
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(session, "Checkpoints", Late)
    with pytest.raises(Interrupted, match="stopped at step 100 of 200"):
        runs.train(SMALL, tmp_path / "run")
    assert [row["step"] for row in read(tmp_path / "run" / "metrics.jsonl")] == [50, 100]
    assert "0000000100" in names(tmp_path / "run" / "checkpoints", "*")


def command(folder):
    return [
        "sweep", "sine", "--out", folder, "--method", "moml-v2", "--optimizer", "adam",
        "--problem.hidden", "8", "--grid", "eta=.005", "beta=.2,.5", "--seeds", "1",
        "--iterations", "8000", "--log-every", "100", "--score-every", "0", "--save-seconds", "0",
        "--test-tasks", "20", "--test-steps", "2", "--memory-gb", "1e-9", "--k", "5",
    ]  # fmt: skip


def test_killed_and_resumed_it_ends_the_same(tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    finished(*command(whole))
    parts = sorted(names(whole, "part-*"))
    assert len(parts) == 2
    process = begun(*command(run))
    late = run / parts[1]
    saved = lambda: names(late / "checkpoints", "[0-9]*") and lines(late / "metrics.jsonl") > 9
    came = until(process, saved)
    process.send_signal(signal.SIGKILL)
    _, error = ended(process)
    assert came and process.returncode == -signal.SIGKILL, error
    finished("resume", run)
    with jax.enable_x64(False):
        for number, part in enumerate(parts):
            one, two = last_state(run, number), last_state(whole, number)
            assert one == two
            assert {".state.memory.m", ".state.optimizer[0].mu", ".good"} <= {
                name[: name.index(".body")] for name in one if ".body" in name
            }
            told = [folder / part / "metrics.jsonl" for folder in (run, whole)]
            assert told[0].read_bytes() == told[1].read_bytes()
    rows = [json.loads((folder / "rows.json").read_text()) for folder in (run, whole)]
    for row in (*rows[0], *rows[1]):
        row.pop("seconds")
    assert rows[0] == rows[1] and len(rows[0]) == 2
