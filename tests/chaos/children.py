"""Commands of moml in forked processes, each with a fate: killed, or without space, at some moment.

The process that forks has moml imported, but must not compute: XLA's threads do not survive a fork.
"""

import errno
import os
import resource
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from moml.cli import main

HANGS = " (it hangs)"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree")
LONGEST = 900.0  # seconds: a command that takes longer hangs, also on a busy machine


class Fate(NamedTuple):
    """What happens to a command."""

    kind: str = ""  # "", "touch", "torn", "time", "full", "limit"
    at: float = 0  # touches, seconds or bytes, by the kind
    clock: int | None = None  # a seed of jumps of the clock


class End(NamedTuple):
    """How a command ended."""

    code: int  # exit code; negative: the signal
    error: str  # what it wrote to standard error
    touches: int  # of files, if it lived to count them
    seconds: float

    @property
    def killed(self) -> bool:
        """Whether it was killed, as was its fate."""
        return self.code in (-signal.SIGKILL, -signal.SIGALRM) and HANGS not in self.error


class Running(NamedTuple):
    """A command that is under way."""

    pid: int
    told: Path
    began: float


def begin(root: Path, fate: Fate, *words: object) -> Running:
    """Start `moml WORDS`; what it touches under `root` is counted."""
    told = root / f".told-{time.monotonic_ns()}"
    sys.stdout.flush()
    if pid := os.fork():
        return Running(pid, told, time.monotonic())
    code = 1
    try:
        error = os.open(told, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(error, 2)
        touches = _meet(root, fate)
        sys.argv = ["moml", *map(str, words)]
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            sys.stderr.flush()
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            os.write(2, f"\n{touches()}".encode())
    except BaseException:
        os.write(2, f"\n{traceback.format_exc()}\n0".encode())
    finally:
        os._exit(code)


def end(running: Running) -> End:
    """Wait for a command; it is killed if it hangs."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(running.pid, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(running.pid, 0)[1])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.monotonic() - running.began
    text = running.told.read_text(errors="replace") if running.told.exists() else ""
    running.told.unlink(missing_ok=True)
    error, _, last = text.rpartition("\n")
    if not last.isdecimal():  # killed before it could count
        error, last = text, "0"
    return End(code, error + HANGS * (seconds > LONGEST), int(last), seconds)


NOTHING = Fate()


def moml(root: Path, *words: object, fate: Fate = NOTHING) -> End:
    """`moml WORDS`, to its end."""
    return end(begin(root, fate, *words))


def _meet(root: Path, fate: Fate) -> Callable[[], int]:
    """Let a fate come over this process; a function that gives the touches so far."""
    count, sync, place = 0, os.fsync, str(root)
    safe: dict[int, int] = {}  # bytes of each file that are on the disk, by its inode

    def touch(handle: int | None = None) -> None:
        nonlocal count
        count += 1
        if fate.kind in ("touch", "torn") and count >= fate.at:
            if fate.kind == "torn" and handle is not None:  # part of what is not there yet
                found = os.fstat(handle)
                old = min(safe.get(found.st_ino, 0), found.st_size)
                with suppress(OSError):  # open for reading only
                    os.ftruncate(handle, old + int((found.st_size - old) * (count * 0.618 % 1)))
            os.kill(os.getpid(), signal.SIGKILL)

    def no_space() -> None:
        if fate.kind == "full" and count >= fate.at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def hook(event: str, given: tuple) -> None:
        if event == "open" and given[2] & WRITES and str(given[0]).startswith(place):
            with suppress(OSError):
                found = os.stat(given[0])
                safe.setdefault(found.st_ino, found.st_size)
            touch()
            no_space()
        elif event in CHANGES and str(given[0]).startswith(place):
            touch()
            if event == "os.mkdir":
                no_space()

    def fsync(handle: int) -> None:
        found = os.fstat(handle)
        touch(handle if stat.S_ISREG(found.st_mode) else None)
        no_space()
        sync(handle)
        safe[found.st_ino] = found.st_size
        touch()

    sys.addaudithook(hook)
    os.fsync = fsync
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if fate.kind == "time":  # the kernel ends the process, as SIGKILL does
        signal.setitimer(signal.ITIMER_REAL, max(fate.at, 1e-4))
    if fate.kind == "limit":  # the kernel's own word: a file cannot grow past it
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(fate.at), resource.RLIM_INFINITY))
    if fate.clock is not None:
        _jump(fate.clock)
    return lambda: count


def _jump(seed: int) -> None:
    """Let the clock on the wall jump by up to 30 years at each look at it."""
    import random

    rng, real, years = random.Random(seed), time.time, 30 * 365 * 86400
    jumped = lambda: real() + rng.choice((0, 0, -1, 1)) * rng.uniform(0, years)
    time.time = jumped
    gm, local, form = time.gmtime, time.localtime, time.strftime
    time.gmtime = lambda at=None: gm(jumped() if at is None else at)
    time.localtime = lambda at=None: local(jumped() if at is None else at)
    time.strftime = lambda words, at=None: form(words, time.localtime() if at is None else at)
