"""A run is the same on one device, on eight, and on those of two processes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from moml.methods import METHODS
from tests.runtime.many_devices import CASES, MORE

ROOT = Path(__file__).parents[2]


def start(*words, devices=1):
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.many_devices", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(*processes, seconds):
    """What processes print at their end, which comes within so many seconds."""
    try:
        ends = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(processes, ends, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(out.splitlines()[-1]) for out, _ in ends]


def check(runs, names):
    assert runs.keys() == set(names)
    for name, found in runs.items():
        assert found["apart"] < 1e-12, name
        method = (CASES | MORE)[name].name
        sums = 3 if method == "bspiderboost" else 1  # of the large batch; at two points of others
        assert {kind for kind, _ in found["sent"]} == {"all-reduce"}, name
        assert sum(size for _, size in found["sent"]) == sums * found["summed"], name
        assert sums == 3 or len(found["sent"]) == 1, name


def on_eight(*names, seconds):
    [found] = said(start(*names, devices=8), seconds=seconds)
    assert found["devices"] == 8
    check(found["runs"], names)
    return found


def on_two(*names, seconds):
    """On one device of each of two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for found in said(*(start(address, number, *names) for number in "01"), seconds=seconds):
        assert found["devices"] == 2
        check(found["runs"], names)


def test_eight_devices():
    found = on_eight(*CASES, seconds=300)
    assert found["moved_on"] < 1e-12
    assert found["filled"] < 1e-12
    needed, rows = found["beside"]
    assert needed < rows / 10  # memories are not copied
    method, again, few, many = found["refused"]
    assert "one device" in method
    assert "with replacement" in again
    assert "8 devices" in few and "n = 5" in few
    assert "1 to 8" in many and "got 9" in many


def test_no_method_is_left_out():
    assert {case.name for case in (CASES | MORE).values()} == set(METHODS)


@pytest.mark.slow
def test_eight_devices_more_methods():
    on_eight(*MORE, seconds=600)


@pytest.mark.slow
def test_two_processes_all_methods():
    on_two(*(name for name, case in (CASES | MORE).items() if case.devices is None), seconds=600)
