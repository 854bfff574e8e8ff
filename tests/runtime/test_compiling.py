"""Compilation in a thread: what it returns and raises, what is shown, and how a signal ends it."""

import os
import signal
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import pytest

from moml.runtime import compiling
from moml.storage.metrics import read
from moml.training.progress import bar
from tests.support.often import often
from tests.support.processes import MOML, finished

SOON = "from moml.runtime import compiling; compiling.AFTER = 0.0; "
HANDLED = "import signal as s; s.signal(s.SIGINT, s.default_int_handler); "  # even if ignored
RUN = ["sine", "--iterations", "40", "--log-every", "20", "--inner-steps", "8", "--method", "maml"]


@pytest.fixture
def soon(monkeypatch):
    """Lines are shown at once."""
    monkeypatch.setattr(compiling, "AFTER", 0.0)


def test_programs_compile_as_they_would_without_a_thread():
    with compiling.interruptible():
        assert jax.jit(lambda x: 2 * x)(jnp.ones(3)).sum() == 6
        for wide, dtype in {True: "float64", False: "float32"}.items():
            with jax.enable_x64(wide):
                assert jax.jit(lambda: jnp.ones(2) / 3)().dtype == dtype
    assert not compiling.busy() and not compiling.waits()


def test_values_and_errors_come_back():
    def call(x):
        if x < 0:
            raise ValueError(f"got {x}")
        assert threading.current_thread() is not threading.main_thread()
        assert compiling.waits() and compiling.busy()
        return x + 1

    assert compiling.in_thread(call)(1) == 2
    with pytest.raises(ValueError, match="got -1"):
        compiling.in_thread(call)(-1)
    assert not compiling.busy() and not compiling.waits()


def test_another_thread_compiles_itself(soon, capsys):
    seen = []

    def call():
        time.sleep(0.1)
        seen.append(threading.current_thread())

    with compiling.shown(compiling.line()):
        thread = threading.Thread(target=compiling.in_thread(call))
        thread.start()
        thread.join()
    assert seen == [thread]
    assert capsys.readouterr().err == "compiling ...\n"


def test_an_interrupted_pool_does_not_wait():
    end = threading.Event()
    with pytest.raises(KeyboardInterrupt), compiling.Threads(1) as pool:
        pool.submit(compiling.in_thread(end.wait))
        while not compiling.busy():
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert compiling.busy()
    end.set()
    pool.shutdown(wait=True)
    with compiling.Threads(1) as pool:
        done = pool.submit(lambda: 3)
    assert done.result() == 3 and not compiling.busy()


def test_a_line_is_shown_once_until_something_moves(soon, capsys):
    wait = compiling.in_thread(time.sleep)
    with compiling.shown(compiling.line()):
        wait(0.1)
        wait(0.1)
        assert capsys.readouterr().err == "compiling ...\n"
        compiling.moved()
        wait(0.1)
        assert capsys.readouterr().err == "compiling ...\n"


def test_nothing_is_shown_before_its_time(capsys):
    with compiling.shown(compiling.line()):
        compiling.in_thread(lambda: None)()
    assert capsys.readouterr().err == ""


def test_it_is_shown_in_the_progress_line(soon, capsys, monkeypatch):
    wait = compiling.in_thread(time.sleep)
    with bar("maml", 2, shown=True) as advance:
        wait(0.1)
        advance(2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "maml: compiling ..." and lines[1].startswith("maml: 2/2")
    with bar("maml", 2, shown=False):  # then by a line of its own
        wait(0.1)
    assert capsys.readouterr().err == "compiling ...\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with bar("maml", 2, shown=True) as advance:
        wait(0.3)
    assert "compiling ..." in capsys.readouterr().err


@pytest.mark.parametrize("number", often([signal.SIGINT, signal.SIGTERM], [signal.SIGINT]))
def test_a_signal_ends_it_at_once_and_the_run_goes_on(number, tmp_path):
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HANDLED + SOON + MOML,
            "train",
            *RUN,
            "--out",
            str(tmp_path / "run"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XLA_FLAGS": "", "MOML_CACHE": "off"},  # it takes a while
    )
    try:
        lines = iter(process.stderr.readline, "maml: compiling ...\n")
        told = list(lines)
        process.send_signal(number)
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + number, "".join(told) + error
    text = "moml: stopped while compiling; no step is saved yet; go on with: moml resume "
    said = error.removeprefix("compiling ...\n")  # once more, where the signal took a second
    assert said == f"{text}{tmp_path / 'run'}\n"
    assert read(tmp_path / "run" / "metrics.jsonl") == []
    finished("resume", tmp_path / "run", MOML_CACHE=str(tmp_path / "cache"))
    assert [row["step"] for row in read(tmp_path / "run" / "metrics.jsonl")] == [20, 40]


def test_a_command_without_progress_says_that_it_compiles(tmp_path):
    _, error = finished("doctor", script=SOON + MOML, MOML_CACHE=str(tmp_path / "cache"))
    assert error.splitlines() == ["compiling ..."]


def test_times_that_are_left_do_not_count_compilation(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with bar("steps", 100, shown=True) as advance:
        with compiling._timed():
            now[0] += 50
            with compiling._timed():  # side by side: counted once
                now[0] += 50
        now[0] += 10  # the program is traced
        advance(10)
        now[0] += 5
        with compiling._timed():
            now[0] += 20
        now[0] += 5
        advance(30)
    first, second = capsys.readouterr().err.splitlines()[-2:]
    assert first == "steps: 10/100, 1/s" and second == "steps: 30/100, 2/s, 35 s left"
    before = compiling.spent()
    with compiling._timed():
        now[0] += 5
        assert compiling.spent() - before == pytest.approx(5)  # also while it compiles
