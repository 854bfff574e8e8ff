import json
import logging
import os
import re
import socket
import subprocess
import sys

import jax
import pytest

from moml.errors import ConfigError
from moml.storage import folder
from moml.storage.folder import Lock

HOLD = """
import sys, time
from moml.storage.folder import Lock
with Lock(sys.argv[1]):
    print("mine", flush=True)
    time.sleep(600)
"""


def hold(path):
    command = [sys.executable, "-c", HOLD, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_second_process_is_refused_by_the_name_of_the_first(tmp_path):
    with hold(tmp_path) as first:
        assert first.stdout.readline() == "mine\n"
        with pytest.raises(ConfigError) as told, Lock(tmp_path):
            pass
        who = json.loads((tmp_path / "lock").read_text())
        assert str(told.value) == (
            f"{tmp_path} is in use by process {first.pid} on {socket.gethostname()}, "
            f"started {who['started']}: {who['command']}"
        )
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", who["started"])
        first.kill()
    with Lock(tmp_path):  # the kernel has let go; the file that was left is no obstacle
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_the_lock_is_let_go_of(tmp_path):
    for _ in range(2):
        with Lock(tmp_path / "new"):
            with (
                pytest.raises(ConfigError, match=f"by process {os.getpid()} on"),
                Lock(tmp_path / "new"),
            ):
                pass
            assert (tmp_path / "new" / "lock").exists()


def test_a_lock_that_nobody_signed(tmp_path):
    with Lock(tmp_path):
        for text in ("", "{", "[]", "{}"):
            (tmp_path / "lock").write_text(text)
            with pytest.raises(ConfigError, match="in use by another process"), Lock(tmp_path):
                pass


def test_no_folder_to_lock(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot lock .*file"), Lock(tmp_path / "file"):
        pass


def test_versions_are_plain(monkeypatch):
    jax.devices()  # XLA reads its flags when it starts, and ends the process over an unknown one
    monkeypatch.setenv("XLA_FLAGS", "--some_flag=1")
    told = json.loads(json.dumps(folder.versions()))
    assert told["x64"] is True and told["deterministic"] is True and told["device"] == "cpu"
    assert told["xla_flags"] == "--some_flag=1"
    assert {"moml", "jax", "jaxlib", "numpy", "optax", "python"} <= set(told)


@pytest.mark.parametrize(
    "flags, asked",
    [
        ("", False),
        ("--xla_gpu_deterministic_ops", True),
        ("--other=3 --xla_gpu_deterministic_ops=True", True),
        ("--xla_gpu_exclude_nondeterministic_ops=1", True),
        ("--xla_gpu_deterministic_ops=true --xla_gpu_deterministic_ops=false", False),
    ],
)
def test_the_deterministic_setting(flags, asked):
    assert folder._deterministic(flags) is asked


def test_the_log_has_timed_lines_and_is_appended_to(tmp_path):
    log = logging.getLogger("moml")
    before = (log.level, list(log.handlers))
    for number in range(2):
        with folder.open_log(tmp_path) as opened:
            assert opened is log
            log.info("chunk %d", number)
            log.debug("not this")
    log.warning("nor this")
    assert (log.level, log.handlers) == before
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["INFO chunk 0", "INFO chunk 1"]
    with pytest.raises(ConfigError, match="cannot write a log"), folder.open_log(tmp_path / "no"):
        pass


def test_warnings_still_show(tmp_path):
    script = (
        "import logging, sys; from moml.storage.folder import open_log\n"
        "with open_log(sys.argv[1]) as log: log.warning('look'); log.info('not here')"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "look\n"
    assert "INFO not here" in (tmp_path / "log.txt").read_text()
