"""A run in two real processes: one is killed, the other says so, one alone goes on to the end."""

import json
import signal
import socket
import time

import jax
import numpy as np
import pytest

from tests.support.processes import MOML, begun, ended, finished, last_state, lines, names, until
from tests.support.program import call

STEPS = 6_000
X64 = {"JAX_ENABLE_X64": "1"}


def train(folder, *more, steps=STEPS):
    return [
        "train", "sine", "--out", folder, "--method", "moml-v2", "--eta", "0.002", "--iterations",
        steps, "--log-every", "100", "--save-seconds", "0", "--test-tasks", "20",
        "--tasks-per-step", "5", *more,
    ]  # fmt: skip


def both(*words, **given):
    """The two processes of a command."""
    return each_its_own(lambda number: words, **given)


def each_its_own(words, **given):
    """Two processes, each with the words of its number."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    more = ["--processes", 2, "--coordinator", address, "--process"]
    return [begun(*words(i), *more, i, **X64, **given) for i in (0, 1)]


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def near(one, two):
    """Metrics and last state of two runs, in double precision, up to the order of sums."""
    for mine, other in zip(rows(one), rows(two), strict=True):
        assert mine["step"] == other["step"]
        np.testing.assert_allclose(mine["loss"], other["loss"], rtol=1e-8)
    states = [last_state(folder) for folder in (one, two)]
    assert states[0].keys() == states[1].keys()
    for at, (dtype, shape, held) in states[0].items():
        assert (dtype, shape) == states[1][at][:2]
        numbers = [np.frombuffer(held, dtype) for held in (held, states[1][at][2])]
        np.testing.assert_allclose(*numbers, rtol=1e-7, atol=1e-8, err_msg=at)


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_one_killed_the_other_says_so_and_one_goes_on(tmp_path, victim):
    whole, run = tmp_path / "whole", tmp_path / "run"
    two = both(*train(run))
    try:
        saved = lambda: lines(run / "metrics.jsonl") > 3 and names(run, "checkpoints/0*")
        assert until(two[0], saved), two[0].communicate()
        two[victim].send_signal(signal.SIGKILL)
        began = time.monotonic()
        error = ended(two[1 - victim])[1]
        assert time.monotonic() - began < 60
        words = ended(two[victim])[1]  # of the process that watches over it
    finally:
        for process in two:
            process.kill()
    assert two[1 - victim].returncode != 0
    assert f"process {1 - victim} of 2" in error and "lost" in error
    assert f"moml resume {run}" in error.splitlines()[-1]
    assert f"process {victim} of 2 was ended: it was killed, or" in words
    assert rows(run)[-1]["step"] < STEPS
    finished("resume", run, **X64)
    finished(*train(whole), **X64)
    near(run, whole)


@pytest.mark.slow
def test_stopped_by_a_signal_and_gone_on_by_more_devices(tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    two = both(*train(run))
    assert until(two[0], lambda: lines(run / "metrics.jsonl") > 3), two[0].communicate()
    two[1].send_signal(signal.SIGTERM)  # one is told, both stop at the same step
    errors = [ended(process)[1] for process in two]
    assert [process.returncode for process in two] == [143, 143], errors
    assert all("and saved" in error for error in errors)
    finished("resume", run, "--devices", 3, **X64)
    finished(*train(whole), **X64)
    near(run, whole)


@pytest.mark.slow
def test_from_one_process_to_two(tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    one = begun(*train(run), **X64)
    assert until(one, lambda: lines(run / "metrics.jsonl") > 3), one.communicate()
    one.send_signal(signal.SIGTERM)
    ended(one)
    two = both("resume", run)
    ends = [ended(process) for process in two]
    assert [process.returncode for process in two] == [0, 0], ends
    out = ends[0][0]
    assert "2 devices of 2 processes: d = 1,761 parameters, 14,096 bytes summed" in out
    assert "test error" in out and "test error" not in ends[1][0]  # the first one prints
    finished(*train(whole), **X64)
    near(run, whole)


@pytest.mark.slow
def test_what_one_process_cannot_do_ends_both(tmp_path):
    """A setting that cannot be, another one than the first has, another folder."""
    other = lambda number, *more: [*train(tmp_path / "run", steps=200), *([], more)[number]]
    for more, first, second in [
        (["--shots", -1], "moml: process 1: shots must be", "moml: shots must be"),
        (["--eta", 0.01], *["moml: process 1 has eta = 0.01, process 0 eta = 0.002: all"] * 2),
        (["--out", tmp_path / "two"], *["moml: process 1 does not see the folder"] * 2),
    ]:
        two = each_its_own(lambda number, more=more: other(number, *more))
        errors = [ended(process)[1].splitlines()[-1] for process in two]
        assert [process.returncode for process in two] == [2, 2], errors
        assert errors[0].startswith(first) and errors[1].startswith(second), errors
    assert names(tmp_path, "*") == ["run"] and names(tmp_path, "run/*") == []


FAILS = """
from moml.runtime.process_group import ProcessGroup
from moml.errors import CheckpointError

def watch(group, turns=[], whole=ProcessGroup.watch):
    turns.append(0)
    if len(turns) == 3 and group.process:
        raise CheckpointError("no space left")
    return whole(group)

ProcessGroup.watch = watch
"""


@pytest.mark.slow
def test_an_error_of_one_while_the_other_waits_for_its_sum(tmp_path):
    two = both(*train(tmp_path / "run"), script=FAILS + MOML)
    errors = [ended(process)[1] for process in two]
    assert [process.returncode for process in two] == [1, 2], errors
    assert errors[0].splitlines()[-1].startswith("moml: process 0 of 2 stops: another one was lost")
    assert errors[1].splitlines()[-1] == "moml: no space left"


@pytest.mark.parametrize(
    "words, told",
    [
        (["--processes", "2", "--process", "1", "--wait", "0"], "wait must be above 0 seconds"),
        (["--processes", "2"], "several processes need both"),
        (["--devices", "0"], "devices must be a whole number from 1; got 0"),
        (["--cluster", "--process", "1"], "--cluster finds out"),
    ],
)
def test_words_that_cannot_be(tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.setattr(jax.config, "update", lambda *given: None)  # JAX is at work already here
    code, _, error = call(capsys, *train(tmp_path / "run"), *words)
    assert code == 2 and told in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_no_cluster(tmp_path):
    process = begun(*train(tmp_path / "run"), "--cluster")
    assert "JAX finds no cluster here that it knows" in ended(process)[1]
    assert process.returncode == 2


def by_slurm(folder, *numbers, more=()):
    """Those of two processes, told so by what SLURM says."""
    with socket.socket() as free:  # JAX makes its port of the job's number
        free.bind(("127.0.0.1", 0))
        job = str(free.getsockname()[1])
    told = {"SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    own = lambda number: told | {"SLURM_PROCID": number, "SLURM_LOCALID": number}
    words = [*train(folder, steps=200), "--cluster", *more]
    return [begun(*words, **X64, **own(number)) for number in numbers]


@pytest.mark.slow
def test_found_by_what_slurm_says(tmp_path):
    two = by_slurm(tmp_path / "run", *"01")
    ends = [ended(process) for process in two]
    assert [process.returncode for process in two] == [0, 0], ends
    assert "2 devices of 2 processes" in ends[0][0]
    assert rows(tmp_path / "run")[-1]["step"] == 200


@pytest.mark.slow
@pytest.mark.parametrize("number", "01")
def test_a_cluster_without_the_other(tmp_path, number):
    [one] = by_slurm(tmp_path / "run", number, more=["--wait", 3])
    error = ended(one)[1]
    told = "moml: not all processes came to the cluster within 3 s"
    assert error.splitlines()[-1].startswith(told) and one.returncode == 2
