import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import moml
from moml.config.config import Config, changed, check
from moml.config.problems import Sine, Synthetic
from moml.config.starts import STARTS
from moml.config.toml import dump, parse
from moml.errors import CheckpointError, Interrupted
from moml.runs import runs, session, sweeps
from moml.runs.record import record_of
from moml.storage.checkpoint import Checkpoints
from moml.storage.folder import Lock
from moml.storage.metrics import read
from moml.training.compose import init_key
from tests.storage.test_checkpoint import files_of, same_bytes
from tests.support.processes import begun, ended, last_state, lines, names
from tests.support.program import call

SMALL = Config(
    Sine(hidden=(40,)), iterations=400, eta=0.01, log_every=100, score_every=200, save_seconds=0.0,
    test_tasks=20, test_steps=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run to its end; it has a checkpoint before the last one."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    runs.train(SMALL, folder)
    return folder


@pytest.fixture
def run(whole, tmp_path):
    """A copy of it, to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def edit(folder, **values):
    """Change config.toml as with an editor."""
    path, problem = folder / "config.toml", values.pop("problem", None)
    config = parse(path.read_text(), "")
    path.write_text(dump(replace(config, problem=problem or config.problem, **values)))


def unlocked(folder):
    """The files of a run, but for the lock that names its last user, and the log."""
    return {
        name: data for name, data in files_of(folder).items() if name not in ("lock", "log.txt")
    }


def test_a_run_leaves_what_repeats_it(whole, tmp_path):
    record = json.loads((whole / "run.json").read_text())
    assert record["seed"] == 0 and record["versions"]["jax"] == jax.__version__
    config = parse((whole / "config.toml").read_text(), "")
    assert config.options["beta"] is not None and config.options["eta"] == 0.01  # resolved
    assert [row["step"] for row in read(whole / "metrics.jsonl")] == [100, 200, 300, 400]
    scored = [row["step"] for row in read(whole / "metrics.jsonl") if row["score"] is not None]
    assert scored == [200, 400]
    runs.train(config, tmp_path / "again")
    assert last_state(tmp_path / "again") == last_state(whole)
    assert (tmp_path / "again" / "metrics.jsonl").read_bytes() == (
        whole / "metrics.jsonl"
    ).read_bytes()


@pytest.mark.parametrize("method", moml.methods.METHODS)
def test_resolved_it_is_a_configuration_that_stays(method):
    problem = "synthetic" if method == "protonet" else "sine"
    config = runs.resolved(check(replace(STARTS[problem], method=method)))
    batch = method in ("scgd", "nasa") or "tasks_per_step" in config.options
    assert "eta" in config.options and batch
    assert parse(dump(config), "") == config
    assert runs.resolved(config) == config


def test_a_model_is_loaded_and_is_that_of_fit(whole):
    learner = moml.load(whole)
    config = parse((whole / "config.toml").read_text(), "")
    net = moml.mlp(1, 40, 1)
    alone = moml.fit(
        "moml", moml.mse(net.predict), net.init(init_key(0)), moml.sine(), iterations=400,
        eta=config.options["eta"], beta=config.options["beta"], alpha=config.options["alpha"], k=1,
        chunk=100,
        shots=config.shots, test_steps=config.test_steps, schedule=moml.parts.decay_at(300),
    )  # fmt: skip
    same_bytes(learner.meta, alone.meta)
    same_bytes(learner.state, alone.state)
    assert learner.samples == alone.samples
    assert learner.hyper == alone.hyper
    np.testing.assert_allclose(learner.history, alone.history.reshape(4, 100).mean(1), rtol=1e-12)
    x = np.linspace(-5, 5, 10)[:, None]
    mine, theirs = (who.adapt(moml.Batch(x, np.sin(x)), steps=3) for who in (learner, alone))
    same_bytes(mine, theirs)
    error = lambda params: float(np.mean((net.predict(params, x) - np.sin(x)) ** 2))
    assert error(mine) < error(learner.params)


def test_a_folder_that_holds_a_run_is_left_alone(run, capsys):
    before = unlocked(run)
    code, _, error = call(capsys, "train", "sine", "--out", run, "--eta", 1)
    assert (
        code == 2 and error == f"moml: {run} holds a run already; go on with: moml resume {run}\n"
    )
    assert unlocked(run) == before
    with Lock(run):
        code, _, error = call(capsys, "train", "sine", "--out", run)
    assert code == 2 and f"{run} is in use by process" in error
    assert unlocked(run) == before


def test_without_a_run_there_is_nothing_to_resume(tmp_path, capsys):
    for folder in (tmp_path, tmp_path / "nowhere"):
        code, _, error = call(capsys, "resume", folder)
        assert code == 2 and error == f"moml: {folder} holds no run: there is no run.json in it\n"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "run.json").write_text('{"config": "", "versions": {}, "seed": 0}')
    code, _, error = call(capsys, "resume", tmp_path)
    assert code == 2 and "was written by an earlier version of moml, which is not read" in error
    (tmp_path / "run.json").write_text("[]")
    code, _, error = call(capsys, "resume", tmp_path)
    assert code == 2 and "cannot read" in error and "run.json" in error


def test_a_run_that_is_done_stays_as_it_is(run, whole, capsys):
    file = run.parent / "more" / "row.json"
    code, out, _ = call(capsys, "resume", run, "--json", file)
    assert code == 0 and str(file) in out
    assert unlocked(run) == unlocked(whole)
    (row,) = json.loads(file.read_text())
    last = read(run / "metrics.jsonl")[-1]
    assert (row["mean"], row["samples"], row["iterations"]) == (last["score"], last["samples"], 400)
    assert (row["method"], row["dataset"], row["seeds"], row["lost"]) == ("moml", "sine", 1, 0)
    assert row["setting"]["eta"] == 0.01 and row["setting"]["seed"] == 0


def test_print_config_parses_back_and_a_file_is_trained(tmp_path, capsys, whole):
    words = ["sine", "--problem.hidden", "40", "--iterations", "400", "--eta", "0.01"]
    words += ["--log-every", "100", "--score-every", "200", "--save-seconds", "0"]
    words += ["--test-tasks", "20", "--test-steps", "2"]
    code, out, _ = call(capsys, "train", "--print-config", "sine")
    assert code == 0 and parse(out, "") == STARTS["sine"]
    code, out, _ = call(capsys, "train", "--print-config", *words)
    assert code == 0 and parse(out, "") == SMALL
    (tmp_path / "my.toml").write_text(out)
    file = tmp_path / "row.json"
    words = ["train", tmp_path / "my.toml", "--out", tmp_path / "run", "--json", file]
    code, out, error = call(capsys, *words)
    assert code == 0 and "400/400" in error and f"folder: {tmp_path / 'run'}" in out
    assert last_state(tmp_path / "run") == last_state(whole)
    assert json.loads(file.read_text())[0]["mean"] == read(whole / "metrics.jsonl")[-1]["score"]


# A changed configuration


def test_a_change_is_refused_by_its_name(run, capsys):
    edit(run, eta=0.02)
    before = unlocked(run)
    code, _, error = call(capsys, "resume", run)
    assert code == 2 and error.count("\n") == 1
    assert "eta was 0.01 when this run began and is 0.02" in error
    assert "--allow-change eta" in error
    code, _, error = call(capsys, "resume", run, "--allow-change", "beta")
    assert code == 2 and "--allow-change eta" in error  # beta may change, but eta did
    code, _, error = call(capsys, "resume", run, "--allow-change", "nosuch")
    assert code == 2 and "--allow-change nosuch: there is no such field" in error
    assert unlocked(run) == before
    edit(run, eta=0.01, problem=Synthetic(n=25))
    code, _, error = call(capsys, "resume", run)
    assert code == 2 and "problem.kind was sine" in error and "is synthetic" in error


def test_an_allowed_change_goes_on_and_is_noted(run, whole, capsys):
    edit(run, eta=0.02, iterations=600)
    code, _, error = call(capsys, "resume", run, "--allow-change", "eta")
    assert code == 2 and "iterations was 400" in error  # more of them may change a schedule
    words = ["resume", run, "--allow-change", "eta", "iterations"]
    code, _, error = call(capsys, *words)
    assert code == 0, error
    rows, old = read(run / "metrics.jsonl"), read(whole / "metrics.jsonl")
    assert rows[:4] == old and [row["step"] for row in rows[4:]] == [500, 600]
    assert rows[-1]["score"] is not None
    record, config = record_of(run)
    assert record["changed"] == [["iterations", "eta"]]
    assert (config.options["eta"], config.iterations) == (0.02, 600)
    assert call(capsys, "resume", run)[0] == 0  # it is the run's own now


def test_fewer_iterations_than_are_done_are_refused(run, capsys):
    edit(run, iterations=300)
    before = unlocked(run)
    code, _, error = call(capsys, "resume", run, "--allow-change", "iterations")
    assert code == 2 and "at step 400 already" in error
    assert unlocked(run) == before


@pytest.mark.parametrize(
    "change, told",
    [
        ({"problem": Sine(hidden=(9,))}, "it holds another state: .meta.body[0].weight"),
        ({"problem": Sine(n=20, hidden=(40,))}, "it holds another state: .memory.u"),
        ({"optimizer": "sgd"}, "it holds another state"),
    ],
)
def test_a_change_that_needs_another_state_is_told_and_forgotten(run, change, told, capsys):
    edit(run, **change)
    before = unlocked(run)
    old, new = record_of(run)[1], parse((run / "config.toml").read_text(), "")
    fields = changed(old, new)
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used"):
        runs.resume(run, fields)
    assert told in capsys.readouterr().err
    assert unlocked(run) == before
    (run / "config.toml").write_text(dump(old))
    runs.resume(run)  # put back, it is what it was


def test_a_configuration_that_cannot_be_read(run, capsys):
    (run / "config.toml").write_bytes(b"\xff\xfe")
    code, _, error = call(capsys, "resume", run)
    assert code == 2 and "config.toml is not TOML" in error
    (run / "config.toml").unlink()
    code, _, error = call(capsys, "resume", run)
    assert code == 2 and "config.toml" in error


# Divergence, damage, and no room


def test_divergence_leaves_the_last_good_checkpoint(run, whole, tmp_path, capsys):
    edit(run, eta=1e30, iterations=600)
    words = ["resume", run, "--allow-change", "eta", "iterations"]
    code, _, error = call(capsys, *words)
    assert code == 3 and "diverged at step 4" in error and "1e+30" in error
    same_bytes(moml.load(run).state, moml.load(whole).state)
    code, _, error = call(capsys, "resume", run)
    assert code == 3  # again, from there
    words = ["--problem.hidden", "40", "--eta", "1e30", "--iterations", "400", "--log-every", "100"]
    words += ["--score-every", "200", "--test-tasks", "20", "--test-steps", "2"]
    code, _, error = call(capsys, "train", "sine", "--out", tmp_path / "bad", *words)
    assert code == 3 and "diverged at step" in error
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        moml.load(tmp_path / "bad")


def damage(run, step):
    path = run / "checkpoints" / step / "info.json"
    path.write_bytes(path.read_bytes()[:-9] + b"123456789")


def test_a_damaged_checkpoint_is_passed_over(run, whole, capsys):
    steps = names(run / "checkpoints", "0*")
    assert len(steps) >= 2 and max(steps) == "0000000400"
    damage(run, max(steps))
    code, _, error = call(capsys, "resume", run)
    assert code == 0
    for told in (error, (run / "log.txt").read_text()):
        assert "0000000400 is skipped: info.json" in told
        assert f"going back to the checkpoint of step {int(sorted(steps)[-2])}" in told
    assert last_state(run) == last_state(whole)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("method", [pytest.param("pfedme", marks=pytest.mark.slow), "ditto"])
def test_a_federated_run_goes_on_with_the_same_clients(method, tmp_path, capsys):
    """Who is lost and who is late depends on the number of the round, not on where a run began."""
    problem = Synthetic(n=6, samples=20, features=4, classes=3, unequal=True)
    config = replace(
        SMALL, problem=problem, method=method, dropout=0.4, straggle=0.5, weighted=True, at_once=2
    )
    whole = tmp_path / "whole"
    runs.train(config, whole)
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    damage(run, max(names(run / "checkpoints", "0*")))
    assert call(capsys, "resume", run)[0] == 0
    assert last_state(run) == last_state(whole)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_when_all_are_damaged_nothing_is_deleted(run, capsys):
    for step in names(run / "checkpoints", "0*"):
        damage(run, step)
    before = unlocked(run)
    code, _, error = call(capsys, "resume", run)
    assert code == 2 and error.splitlines()[-1].startswith("moml: no checkpoint in ")
    assert unlocked(run) == before


def test_metrics_that_were_cut_are_taken_up_from_an_older_checkpoint(run, whole, capsys):
    content = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(content[:-20])
    assert call(capsys, "resume", run)[0] == 0
    assert (run / "metrics.jsonl").read_bytes() == content
    assert last_state(run) == last_state(whole)


def test_when_files_cannot_grow_the_last_good_checkpoint_stays(run, whole):
    edit(run, iterations=600)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); "
    copy = run.parent / "compiled"  # the programs that it adds will be torn
    shutil.copytree(os.environ["MOML_CACHE"], copy)
    process = begun(
        "resume", run, "--allow-change", "iterations", JAX_ENABLE_X64="1", MOML_CACHE=str(copy),
        PYTHONDONTWRITEBYTECODE="1",  # a torn .pyc would stay
        script=limit + "from moml.cli import main; main()",
    )  # fmt: skip
    _, error = ended(process)
    assert process.returncode == 2, error
    told = f"moml: cannot save step 500 in {run / 'checkpoints'}: File too large"
    assert error.splitlines()[-1] == told
    same_bytes(moml.load(run).state, moml.load(whole).state)
    assert names(run / "checkpoints", ".*") == []
    runs.resume(run)  # with room again
    assert lines(run / "metrics.jsonl") == 6
    assert Checkpoints(run / "checkpoints").steps()[-1] == 600


# One problem, one callback


@pytest.mark.parametrize("start", ["train", "sweep"])
def test_the_problem_is_built_once(start, tmp_path, monkeypatch):
    built, build = [], Sine.build
    monkeypatch.setattr(Sine, "build", lambda *given: built.append(given) or build(*given))
    if start == "train":
        runs.train(SMALL, tmp_path / "run")
    else:
        sweeps.sweep_run(SMALL, tmp_path / "run", {"eta": [0.01]}, 1)
    assert len(built) == 1


def test_a_callback_sees_scores_and_may_stop_a_run(whole, tmp_path):
    seen = []

    def watch(info):
        seen.append(info)
        return info.step == 300

    runs.train(SMALL, tmp_path / "run", callback=watch)
    rows = read(whole / "metrics.jsonl")
    assert [info.step for info in seen] == [100, 200, 300]
    assert [info.score is None for info in seen] == [True, False, True]
    assert float(seen[1].score) == rows[1]["score"] and float(seen[2].norm) == rows[2]["norm"]
    same_bytes(moml.load(tmp_path / "run").meta, seen[-1].meta)
    runs.resume(tmp_path / "run")
    assert last_state(tmp_path / "run") == last_state(whole)


def test_a_signal_in_the_moment_that_the_compiler_ends_gives_the_same_line(tmp_path, monkeypatch):
    """The compiler is not busy any more when the line is written."""
    monkeypatch.setattr(session.compiling, "waits", lambda: True)
    kept = Checkpoints(tmp_path / "checkpoints")
    with (
        pytest.raises(Interrupted, match="stopped while compiling; no step is saved yet") as error,
        session.stop_signals() as signalled,
        session._stopped(kept, signalled, "moml resume run"),
    ):
        signal.raise_signal(signal.SIGINT)
    assert error.value.exit_code == 130
