"""Runs that die and go on end with the bytes of one that never stopped; in real processes."""

import shutil
import signal
import time

import jax
import numpy as np
import pytest

from tests.support.processes import begun, ended, finished, last_state, lines, names, until
from tests.support.program import refused

METHODS = {
    "moml-v1": [],
    "moml-v2": [],
    "localmoml": ["--carried", "True", "--dropout", "0.3", "--straggle", "0.3"],
    "moml": ["--beta", "rule"],  # with Adam
}
STEPS = 48_000  # long enough that a process is not done before it is stopped, also under load
STATE = {  # what must be there to be compared, besides .meta
    "moml-v1": {".memory.u", ".memory.visits"},
    "moml-v2": {".memory.m", ".memory.now", ".memory.offset", ".memory.touched"},
    "localmoml": {".memory.u", ".memory.visits"},
    "moml": {
        ".memory.u",
        ".memory.visits",
        ".optimizer[0].mu",
        ".optimizer[0].nu",
        ".optimizer[0].count",
    },
}


def train(folder, method, iterations, *more):
    return [
        "train", "sine", "--out", folder, "--method", method, *METHODS[method], "--k", "5",
        "--iterations", iterations, "--log-every", "100", "--score-every", iterations // 4,
        "--save-seconds", "0", "--test-tasks", "20", "--test-steps", "2", *more,
    ]  # fmt: skip


def same_end(run, whole, method):
    """The last state and the metrics, byte for byte."""
    with jax.enable_x64(False):  # as the processes had it
        one, two = last_state(run), last_state(whole)
    for part in STATE[method] | {".meta"}:
        moved = [at for at in one if at.startswith(part) and np.any(np.frombuffer(one[at][2], "b"))]
        assert moved, part
    assert one == two
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def stopped(process, run, how, rng, number=signal.SIGKILL):
    """Send a signal at a moment; False where the process was done before."""
    metrics, checkpoints = run / "metrics.jsonl", run / "checkpoints"
    before = lines(metrics)
    if how == "any time":
        moment = time.monotonic() + rng.uniform(0, 12)
        came = until(process, lambda: time.monotonic() > moment)
    else:
        more = before + rng.integers(2, 40)
        came = until(process, lambda: lines(metrics) >= more and names(checkpoints, "[0-9]*"))
        if how == "in a save":
            came = came and until(process, lambda: names(checkpoints, ".writing-*"))
        else:
            time.sleep(rng.uniform(0, 0.05))
    if came:
        process.send_signal(number)
    return came


@pytest.mark.parametrize(
    "method, how",
    [
        ("localmoml", "in a save"),
        pytest.param("moml-v2", "in training", marks=pytest.mark.slow),
        pytest.param("moml", "in training", marks=pytest.mark.slow),
    ],
)
def test_killed_and_resumed_it_ends_the_same(tmp_path, capsys, method, how):
    whole, run = tmp_path / "whole", tmp_path / "run"
    rng = np.random.default_rng(len(method))
    words = [STEPS, "--problem.hidden", "40"]
    finished(*train(whole, method, *words))
    process = begun(*train(run, method, *words))
    assert stopped(process, run, how, rng), ended(process)
    ended(process)
    assert process.returncode == -signal.SIGKILL
    assert how != "in a save" or names(run / "checkpoints", ".[wos]*")
    if method == "moml":
        politely(run, rng, capsys)
    out, _ = finished("resume", run)
    assert method in out and lines(run / "metrics.jsonl") == STEPS // 100
    same_end(run, whole, method)


def politely(run, rng, capsys):
    """SIGTERM, then Ctrl-C; a second process in the meantime is sent away."""
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        process = begun("resume", run)
        try:
            signed = lambda pid=process.pid: f'"pid": {pid},' in (run / "lock").read_text()
            assert until(process, signed)
            second_is_refused(run, process.pid, capsys)
            assert stopped(process, run, "in training", rng, number)
        finally:
            _, error = ended(process)
        assert process.returncode == code, error
        told = error.splitlines()[-1]
        step = lines(run / "metrics.jsonl") * 100
        assert told.startswith(f"moml: stopped at step {step} of {STEPS}, and saved; go on with: ")
        assert told.endswith(f"moml resume {run}") and "Traceback" not in error
        assert f"{step:010d}" in names(run / "checkpoints", "*")
        assert f"stopped by signal {number} at step {step}" in (run / "log.txt").read_text()


def second_is_refused(run, pid, capsys):
    error = refused(capsys, "resume", run)
    assert error.startswith(f"moml: {run} is in use by process {pid} on ")
    assert f"resume {run}" in error


@pytest.mark.slow
def test_killed_25_times(tmp_path, capsys):
    """`make test-kill`: all four in turn, each killed until its share of the 25 is reached."""
    began, rng = time.monotonic(), np.random.default_rng(25)
    kills = saves = started = 0
    for share, method in zip((6, 12, 18, 25), METHODS, strict=True):
        whole, resumed = tmp_path / f"{method}-whole", 0
        finished(*train(whole, method, 120_000))
        while kills < share:
            run = tmp_path / f"{method}-{kills}"
            words, done = train(run, method, 120_000), False
            while not done:
                process = begun(*words)
                started += 1
                how = rng.choice(["any time", "in training", "in a save"])
                done = kills >= share or not stopped(process, run, how, rng)
                _, error = ended(process)
                assert process.returncode == (0 if done else -signal.SIGKILL), error
                if not done:
                    kills += 1
                    saves += bool(names(run / "checkpoints", ".[wos]*"))
                    resumed += words[0] == "resume"
                    words = ["resume", run] if (run / "run.json").exists() else words
            same_end(run, whole, method)
            shutil.rmtree(run)
        assert resumed
    with capsys.disabled():
        seconds = time.monotonic() - began
        told = f"{kills} kills, {saves} inside a save, {started} processes, {seconds:.0f} s"
        print(f"\n{told}: last states and metrics byte-equal for {', '.join(METHODS)}")
    assert kills == 25 and saves >= 5
