"""The processes of one run: how they join, and how they agree through JAX's coordinator.

Values are exchanged through its key-value store. The collectives of `multihost_utils` do not return
when a process is lost, and cannot run beside a step in the thread that saves checkpoints.
"""

import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any, TypeVar

import jax

from moml.errors import ConfigError, LostProcess, MomlError, OtherFailed, check_count, one_line

ADDRESS = "127.0.0.1:29410"  # default of --coordinator
HEARTBEAT = 20  # seconds without a heartbeat after which JAX counts a process as lost
PATIENCE = 3600.0  # seconds that the slowest process may be behind
POLL = 1000  # milliseconds between two checks for processes that have failed
DAY = 86_400
END = "moml/end"
T = TypeVar("T")
JAX_ERRORS = (RuntimeError, ValueError)  # which of them differs by version
LOST = ("Gloo", "NCCL", "Connection", "UNAVAILABLE", "DEADLINE_EXCEEDED", "heartbeat")


class ProcessGroup:
    """Process `process` of `processes`; without a client, a single one.

    No device takes part in an exchange, so threads may exchange too, each on its own topic.

    >>> ALONE.exchange("colour", "blue")
    ['blue']
    """

    def __init__(self, process: int = 0, processes: int = 1, client: Any = None):
        self.process, self.processes = process, processes
        self._client, self._lost = client, Event()
        self._count: Counter[str] = Counter()

    @property
    def leads(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.process == 0

    def exchange(self, topic: str, value: str) -> list[str]:
        """Return the values of all processes for a topic, in order; each waits for all."""
        if self._client is None:
            return [value]
        turn, self._count[topic] = self._count[topic], self._count[topic] + 1
        key = lambda turn, process: f"moml/{topic}/{turn}/{process}"
        try:
            self._client.key_value_set(key(turn, self.process), f".{value}")  # never empty
            values = [self._get(key(turn, process)) for process in range(self.processes)]
            if turn:  # all have read the values of the turn before
                self._client.key_value_delete(key(turn - 1, self.process))
        except MomlError:
            raise
        except JAX_ERRORS as error:
            raise self.lost(error) from error
        return [value.removeprefix(".") for value in values]

    def _get(self, key: str) -> str:
        deadline, failure = time.monotonic() + PATIENCE, ""
        while True:
            try:
                return self._client.blocking_key_value_get(key, POLL)
            except JAX_ERRORS as error:
                late = "DEADLINE_EXCEEDED" in str(error) and time.monotonic() < deadline
                if self._lost.is_set() or not late:
                    raise
            if failure:  # from before the last try: no value will come
                raise OtherFailed(failure)
            for key_, why in self._client.key_value_dir_get(f"{END}/"):
                failure = f"process {key_.rpartition('/')[2]}: {why}"

    def agree(self, topic: str, value: str) -> str:
        """Return the value of the first process."""
        return self.exchange(topic, value)[0]

    def run_all(self, topic: str, part: Callable[[], T]) -> T:
        """Call `part` in every process and wait for all; an error in one is an error in all."""
        try:
            result = part()
        except Exception as error:
            self.exchange(topic, str(error) or repr(error))
            raise
        for process, failure in enumerate(self.exchange(topic, "")):
            if failure:
                raise OtherFailed(f"process {process}: {failure}")
        return result

    def finish(self, why: str = "", seconds: float = 60.0) -> bool:
        """Return whether all processes finish within `seconds`; `why` is an error to report."""
        try:
            if why:
                self._client.key_value_set(f"{END}/{self.process}", why)
            self._client.wait_at_barrier(END, int(1000 * seconds))
        except JAX_ERRORS:
            return False
        return True

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Raise LostProcess where a computation fails because another process is gone."""
        try:
            yield
        except JAX_ERRORS as error:
            ours = self._client is None or isinstance(error, MomlError)
            if ours or not any(sign in str(error) for sign in LOST):
                raise
            raise self.lost(error) from error

    def lost(self, error: BaseException) -> LostProcess:
        """Return what to raise where another process no longer answers."""
        self._lost.set()
        mine = f"process {self.process} of {self.processes} stops: another one was lost"
        return LostProcess(f"{mine} ({one_line(error, 160)})")


def nothing() -> None:
    """Do nothing: the part of a process that has none."""


ALONE = ProcessGroup()


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    cluster: bool = False,
    wait: float = 60.0,
) -> ProcessGroup:
    """Join the other processes of a run, before JAX computes anything.

    `coordinator` is HOST:PORT, where process 0 listens, on that address alone. With `cluster`, JAX
    finds all three in what SLURM, Open MPI or Kubernetes provide. There is no authentication.
    """
    named = any(value is not None for value in (coordinator, processes, process))
    if not 0 < wait <= DAY:
        raise ConfigError(f"wait must be above 0 seconds, up to a day; got {wait:g}")
    if cluster and named:
        raise ConfigError("--cluster finds out --processes, --process and --coordinator by itself")
    if cluster:
        return _initialize("the cluster", wait)
    if not named:
        return ALONE
    if processes is None or process is None:
        raise ConfigError("several processes need both --processes and --process")
    check_count("processes", processes)
    check_count("process", process, least=0, below=processes)
    host, _, port = (coordinator or ADDRESS).rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 2**16:
        message = "coordinator must be HOST:PORT, the port from 1 to 65535"
        raise ConfigError(f"{message}; got {coordinator}")
    if processes == 1:
        return ALONE
    host = host or "127.0.0.1"
    if process == 0:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:  # JAX would share the port with another run
            socket.create_server((host.strip("[]"), int(port)), family=family).close()
        except OSError as error:
            raise ConfigError(f"cannot listen at {host}:{port}: {error.strerror}") from error
    address, numbers = f"{host}:{port}", {"num_processes": processes, "process_id": process}
    bound = {"coordinator_address": address, "coordinator_bind_address": address}
    return _initialize(address, wait, cluster_detection_method="deactivate", **bound, **numbers)


def _initialize(where: str, wait: float, **options: Any) -> ProcessGroup:
    from jax._src import distributed  # the key-value store has no public interface
    from jax._src.lib import _jax

    state: Any = distributed.global_state
    client = _jax.get_distributed_runtime_client
    # Where processes do not come JAX aborts, or raises an error if it has this callback.
    _jax.get_distributed_runtime_client = partial(client, missed_heartbeat_callback=print)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    options |= {"heartbeat_timeout_seconds": HEARTBEAT, "shutdown_timeout_seconds": 60}
    try:
        jax.distributed.initialize(initialization_timeout=math.ceil(wait), **options)
    except ValueError as error:
        message = f"--cluster: JAX finds no cluster here that it knows ({error})"
        raise ConfigError(f"{message}; name --coordinator, --processes and --process") from error
    except RuntimeError as error:
        state.client = state.service = None
        message = f"not all processes came to {where} within {wait:g} s"
        raise ConfigError(
            f"{message}; is each one running, under its own number, and does it reach process 0?"
        ) from error
    finally:
        _jax.get_distributed_runtime_client = client
    return ProcessGroup(state.process_id, state.num_processes, state.client)
