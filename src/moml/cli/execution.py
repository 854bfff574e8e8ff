"""Options of commands that may run on many devices and in many processes."""

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from moml.cli.plugins import Plugins
from moml.errors import LostProcess, MomlError, check_count, printable

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from moml.runtime.process_group import ProcessGroup

APART = 5.0  # seconds between the ends of processes that end by the same error


@dataclass(frozen=True, kw_only=True)
class Execution(Plugins):
    """Where a command computes."""

    devices: int | None = None
    """Devices of each process that tasks are shared out to, each with the data and memories of its
    own tasks; without an accelerator that many are made of the processor. By default one; with
    several processes, all that they have."""
    processes: int | None = None
    """How many processes there are in all; each is started with the same command."""
    process: int | None = None
    """Number of this process, from 0. Process 0 prints, and writes the run's folder; all need to
    see it."""
    coordinator: str | None = None
    """HOST:PORT where process 0 listens, on that address alone; by default 127.0.0.1:29410. There
    is no password: whoever reaches it can take part."""
    cluster: bool = False
    """Take the last three from SLURM, Open MPI or Kubernetes."""
    wait: float = 60.0
    """Seconds to wait for the other processes."""


@contextmanager
def execution(
    own: Execution, folder: Path, *, again: str | None = None
) -> "Iterator[tuple[Mesh | None, ProcessGroup]]":
    """Join the other processes, before JAX computes anything; report where one of them is lost.

    `again` says what to do then; by default to resume the run in `folder`.
    """
    import jax

    from moml.runs.consistency import assert_same_command
    from moml.runs.record import resume_words
    from moml.runtime.mesh import mesh
    from moml.runtime.process_group import join

    if own.devices is not None:
        check_count("devices", own.devices)
        jax.config.update("jax_num_cpu_devices", own.devices)
    group = join(own.coordinator, own.processes, own.process, cluster=own.cluster, wait=own.wait)
    if group.processes == 1:
        yield (mesh(own.devices) if (own.devices or 1) > 1 else None), group
        return
    words = f"process {group.process} of {group.processes} was ended: it was killed, or another one"
    resume = resume_words(folder, own.plugin)
    hint = again or f"what was saved last is good, go on with: {resume}"
    watcher = _print_at_abort(f"moml: {words} was lost; {hint}")
    try:
        assert_same_command(group, type(own).__name__.lower(), own.devices)
        yield mesh(own.devices), group
        group.finish()
    except (Exception, KeyboardInterrupt) as error:
        watcher.kill()
        lost, code = isinstance(error, LostProcess), _print(error, hint)
        if lost or not group.finish(str(error) or repr(error), APART):
            sys.stdout.flush()
            os._exit(code)  # an orderly end would wait for the others, who are lost or go on
        raise SystemExit(code) from error
    finally:
        watcher.kill()
        watcher.communicate()


def _print_at_abort(message: str) -> subprocess.Popen[bytes]:
    """Start a process that prints a message when this one ends, unless it is killed before.

    JAX aborts a process when process 0 is lost: no line of Python runs after that.
    """
    command = ["sh", "-c", 'read -r _; echo "$0" >&2', message]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def _print(error: BaseException, hint: str) -> int:
    """Print what ends this process; its exit code."""
    if isinstance(error, MomlError):
        more = f"; {hint}" if isinstance(error, LostProcess) else ""
        print(printable(f"moml: {error}{more}"), file=sys.stderr, flush=True)
        return error.exit_code
    traceback.print_exception(error)
    return 130 if isinstance(error, KeyboardInterrupt) else 1
