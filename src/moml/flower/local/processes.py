"""Processes that outlive the command that started them; known by pid and time of start."""

import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from psutil import STATUS_ZOMBIE, NoSuchProcess, Process


def start(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """Start a process in its own session; its output is appended to a file."""
    with open(log, "ab") as file:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    child.returncode = 0  # it is to outlive this process, so Python need not warn that it does
    return Process(child.pid)


def find(pid: int, started: float) -> Process | None:
    """Return the process that was started at that time, if it still runs."""
    with suppress(NoSuchProcess):
        process = Process(pid)
        if abs(process.create_time() - started) < 1 and alive(process):
            return process
    return None


def alive(process: Process) -> bool:
    """Return whether a process runs."""
    with suppress(NoSuchProcess):
        return process.is_running() and process.status() != STATUS_ZOMBIE
    return False


def stop(processes: Iterable[Process], seconds: float = 10.0) -> None:
    """Terminate processes and all their descendants; kill those left after `seconds`."""
    known, asked = set(processes), set[Process]()
    deadline = time.monotonic() + seconds
    while known := _with_descendants(filter(alive, known)):
        late = time.monotonic() > deadline
        for process in known if late else known - asked:
            with suppress(NoSuchProcess):
                process.kill() if late else process.terminate()
        asked |= known
        time.sleep(0.05)


def _with_descendants(processes: Iterable[Process]) -> set[Process]:
    found = set()
    for process in processes:
        with suppress(NoSuchProcess):
            found |= {process, *process.children(recursive=True)}
    return found
