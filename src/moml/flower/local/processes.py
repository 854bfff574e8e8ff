"""Processes that outlive the command that started them; known by pid and time of start."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Process(NamedTuple):
    """One that was started here: a pid is given anew one day, but not with its time of start."""

    name: str
    pid: int
    started: str

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return table(self.pid).get(self.pid, (0, ""))[1] == self.started


def table(pid: int | None = None) -> dict[int, tuple[int, str]]:
    """The processes that run, or one of them: pid -> its parent's pid, its time of start."""
    return _from_proc(pid) if (PROC / "self" / "stat").exists() else _from_ps(pid)


def _from_proc(pid: int | None) -> dict[int, tuple[int, str]]:
    found = {}
    boot = (PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    for place in PROC.iterdir() if pid is None else [PROC / str(pid)]:
        if place.name.isdigit():
            try:
                words = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if words[0] not in "ZX":  # dead, and not yet looked after by its parent
                found[int(place.name)] = (int(words[1]), f"{boot} {words[19]}")
    return found


def _from_ps(pid: int | None) -> dict[int, tuple[int, str]]:
    which = ["-A"] if pid is None else ["-p", str(pid)]
    command = ["ps", *which, "-o", "pid=,ppid=,stat=,lstart="]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split(maxsplit=3) for line in lines]
    return {int(one): (int(of), since) for one, of, state, since in rows if state[0] != "Z"}


def begin(name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """Start a process in a session of its own; what it prints is appended to a file."""
    with open(log, "ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    process.returncode = 0  # it is to outlive us, so Python need not warn that it does
    return Process(name, process.pid, table(process.pid).get(process.pid, (0, "dead"))[1])


def stop(processes: Iterable[Process], seconds: float = 10.0) -> None:
    """End these, and all that they have started: asked first, killed after so many seconds."""
    known = {one.pid: one.started for one in processes}
    asked: set[int] = set()
    deadline = time.monotonic() + seconds
    while known := _running(known):
        number = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        for pid in known:
            if number == signal.SIGKILL or pid not in asked:
                with suppress(ProcessLookupError):  # it ended by itself
                    os.kill(pid, number)
        asked |= known.keys()
        time.sleep(0.05)


def _running(known: Mapping[int, str]) -> dict[int, str]:
    """Those of some processes that run, and all that descend from them."""
    now = table()
    found = {pid: since for pid, since in known.items() if now.get(pid, (0, ""))[1] == since}
    while more := {p: s for p, (of, s) in now.items() if of in found and p not in found}:
        found |= more
    return found
