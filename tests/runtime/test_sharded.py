"""A run is the same on one device, on eight, and on those of two processes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.many_devices import CASES

ROOT = Path(__file__).parents[2]
FEDERATED = ("localmoml", "per-fedavg", "pfedme", "fedavg")


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


def check(name, found):
    assert found["apart"] < 1e-12, name
    losses = 2 if CASES[name].name in FEDERATED else 1  # what is summed beside the model
    assert found["sent"] == [["all-reduce", 8 * (found["model"] + losses)]], name


def on_two(*names, seconds):
    """These cases, or all, on one device of each of two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    both = said(*(start(address, number, *names) for number in "01"), seconds=seconds)
    for found in both:
        assert found["devices"] == 2
        assert found["runs"].keys() == set(names or CASES)
        for name, run in found["runs"].items():
            check(name, run)


def test_eight_devices():
    [found] = said(start(devices=8), seconds=300)
    assert found["devices"] == 8
    assert found["runs"].keys() == CASES.keys()
    for name in CASES:
        check(name, found["runs"][name])
    assert found["moved_on"] < 1e-12
    assert found["filled"] < 1e-12
    needed, rows = found["beside"]
    assert needed < rows / 10  # memories are not copied
    method, few, many = found["refused"]
    assert "one device" in method
    assert "8 devices" in few and "n = 5" in few
    assert "1 to 8" in many and "given 9" in many


def test_two_processes():
    on_two("v2", "localmoml carried, lossy", seconds=120)


@pytest.mark.slow
def test_two_processes_all_methods():
    on_two(seconds=600)
