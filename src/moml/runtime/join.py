"""How the processes of a run find each other.

They meet at the coordinator's address before JAX does: JAX ends a process whose partners do not
come by an abort, without a word that a user could use. Nothing here is a secret or proves one:
whoever reaches the port can take part.
"""

import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

import jax

from moml.errors import ConfigError, check_count
from moml.runtime.process_group import ALONE, Team

NEAR = "127.0.0.1:29410"  # where nothing else is said
HEARTBEAT = 20  # seconds without a sign of life after which JAX counts a process as lost
LATER = 60  # seconds for what follows the meeting
DAY = 86_400
OURS = "moml "  # what all that is said at the meeting begins with
LONGEST = 500  # bytes of it


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    wait: float = 60.0,
) -> Team:
    """Wait until all `processes` are there, each with its own number; before JAX computes anything.

    `coordinator` is HOST:PORT, where process 0 listens: on that address alone.
    """
    if processes is None and process is None and coordinator is None:
        return ALONE
    if processes is None or process is None:
        raise ConfigError("several processes need both --processes and --process")
    check_count("processes", processes)
    check_count("process", process, least=0, below=processes)
    check_wait(wait)
    host, port = address_of(NEAR if coordinator is None else coordinator)
    if processes == 1:
        return ALONE
    meet(host, port, processes, process, wait)
    return _joined(
        coordinator_address=f"{host}:{port}",
        coordinator_bind_address=f"{host}:{port}",
        num_processes=processes,
        process_id=process,
        cluster_detection_method="deactivate",
    )


def join_cluster(wait: float = 60.0) -> Team:
    """The same with what SLURM, Open MPI or Kubernetes tell about the processes.

    Who waits in vain is aborted by JAX, with exit code 134.
    """
    seconds = int(max(1, check_wait(wait)))
    words = LastWords(
        f"moml: --cluster: not all processes came within {seconds} s, or this one was killed; are "
        "all of them running, and can they reach the first one?"
    )
    try:
        return _joined(initialization_timeout=seconds)
    except ValueError as error:
        raise ConfigError(
            f"--cluster: JAX finds no cluster here that it knows ({error}); name --coordinator, "
            "--processes and --process"
        ) from error
    finally:
        words.unsay()


def check_wait(wait: float) -> float:
    """Seconds to wait, if they are some, and not for ever."""
    if not 0 < wait <= DAY:
        raise ConfigError(f"wait must be above 0 seconds, up to a day; given {wait:g}")
    return wait


def _joined(initialization_timeout: int = LATER, **given: Any) -> Team:
    from jax._src import distributed  # the words between processes have no public door

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        initialization_timeout=initialization_timeout,
        heartbeat_timeout_seconds=HEARTBEAT,
        shutdown_timeout_seconds=LATER,
        **given,
    )
    state = distributed.global_state
    return Team(state.process_id, state.num_processes, state.client)


def address_of(words: str) -> tuple[str, int]:
    """HOST:PORT, or the PORT of this machine alone.

    >>> address_of("9000"), address_of("[::1]:9000")
    (('127.0.0.1', 9000), ('[::1]', 9000))
    """
    host, _, port = words.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError(f"coordinator must be HOST:PORT, the port from 1 to 65535; given {words}")
    return host or "127.0.0.1", int(port)


def meet(host: str, port: int, processes: int, process: int, wait: float) -> None:
    """Return when every process has come to this address, or say who has not."""
    end = time.monotonic() + wait
    if process == 0:
        return _receive(host, port, processes, end, wait)
    why = ""
    while (left := end - time.monotonic()) > 0:
        try:
            with socket.create_connection((host.strip("[]"), port), timeout=left) as line:
                line.sendall(f"{OURS}{process} {processes}\n".encode())
                answer = _heard(line, max(left, 1.0) + 5)  # process 0 tells when it gives up
        except OSError as error:
            why = error.strerror or str(error)
            time.sleep(0.2)
            continue
        if answer == f"{OURS}go":
            return None
        if answer.startswith(OURS):
            raise ConfigError(f"process 0 at {host}:{port}: {answer.removeprefix(OURS)}")
        if answer:
            raise ConfigError(
                f"something else than moml answers at {host}:{port}; give another --coordinator"
            )
        why = "it hung up"
        time.sleep(0.2)
    raise ConfigError(
        f"process {process} found no process 0 at {host}:{port} within {wait:g} s ({why}); is it "
        "running, and is the address reachable from here?"
    )


def _receive(host: str, port: int, processes: int, end: float, wait: float) -> None:
    lines: dict[int, socket.socket] = {}
    with ExitStack() as open_:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = open_.enter_context(socket.socket(family))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((host.strip("[]"), port))
            server.listen()
        except OSError as error:
            raise ConfigError(f"cannot listen at {host}:{port}: {error.strerror}") from error
        while missing := sorted(set(range(1, processes)) - set(lines)):
            server.settimeout(max(end - time.monotonic(), 0.01))
            try:
                line = open_.enter_context(server.accept()[0])
                greeting = _heard(line, 5.0).split()
            except TimeoutError:
                if time.monotonic() < end:
                    continue  # somebody who said nothing
                problem = f"of {processes} processes {missing} did not come within {wait:g} s"
                _tell(lines, problem)
                raise ConfigError(f"{host}:{port}: {problem}") from None
            except OSError:
                continue
            if len(greeting) != 3 or greeting[0] != OURS.strip() or not greeting[1].isdecimal():
                continue  # a stranger
            problem = ""
            if greeting[2] != str(processes):
                problem = f"told of {processes} processes here, of {greeting[2]} there"
            elif int(greeting[1]) not in missing:
                problem = f"a second process {greeting[1]}"
            if problem:
                _tell({**lines, -1: line}, problem)
                raise ConfigError(f"{host}:{port}: {problem}")
            lines[int(greeting[1])] = line
        _tell(lines, "go")


def _heard(line: socket.socket, seconds: float) -> str:
    """The line that somebody says within some seconds; of a stranger, how it begins."""
    end, heard, ours = time.monotonic() + seconds, b"", OURS.encode()
    while b"\n" not in heard and len(heard) < LONGEST:
        line.settimeout(max(end - time.monotonic(), 0.01))
        piece = line.recv(LONGEST)
        heard += piece
        if not piece or not heard.startswith(ours[: len(heard)]):
            break
    return heard.partition(b"\n")[0].decode(errors="replace")


def _tell(lines: dict[int, socket.socket], words: str) -> None:
    for line in lines.values():
        try:
            line.sendall(f"{OURS}{words}\n".encode())
            line.shutdown(socket.SHUT_WR)
            line.recv(1)  # they hang up first: the port is free at once
        except OSError:
            continue


class LastWords:
    """A small process that says a sentence if this one is ended before it could.

    JAX aborts a process when it hears that another was lost; nothing of ours runs after that.
    """

    SCRIPT = (
        "import sys; done = sys.stdin.buffer.read(); done or print(sys.argv[1], file=sys.stderr)"
    )

    def __init__(self, sentence: str):
        self._watcher = subprocess.Popen(
            [sys.executable, "-S", "-c", self.SCRIPT, sentence],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def unsay(self) -> None:
        """Say nothing: the process has said, or will say, how it ends."""
        if self._watcher.returncode is None:
            self._watcher.communicate(b".")
