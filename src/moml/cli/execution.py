"""Options of commands that may run on many devices and in many processes."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from moml.errors import ConfigError, LostProcess, MomlError, check_count

ALL_END = 5.0  # seconds that processes are apart when they end by the same error


@dataclass(frozen=True, kw_only=True)
class Together:
    """Where a command computes."""

    devices: int | None = None
    """Devices of each process that tasks are shared out to, each with the data and memories of its
    own; without an accelerator that many are made of the processor. By default one; of several
    processes all that they have."""
    processes: int | None = None
    """How many processes there are in all; each is started with the same command."""
    process: int | None = None
    """Which of them this is, from 0. Number 0 prints, and writes the run's folder; all need to see
    it."""
    coordinator: str | None = None
    """HOST:PORT where process 0 listens, on that address alone; by default 127.0.0.1:29410. It asks
    for no password: whoever reaches it can take part."""
    cluster: bool = False
    """Take the last three from SLURM, Open MPI or Kubernetes."""
    wait: float = 60.0
    """Seconds to wait for the other processes."""


class Where(NamedTuple):
    """What came of it."""

    mesh: Any
    team: Any


@contextmanager
def where(own: Together, folder: Path) -> Iterator[Where]:
    """Join the other processes, before JAX computes anything; say so where one of them is lost."""
    import jax

    from moml.runs.consistency import same_command
    from moml.runtime.join import LastWords, join, join_cluster

    if own.devices is not None:
        check_count("devices", own.devices)
        jax.config.update("jax_num_cpu_devices", own.devices)
    named = (own.processes, own.process, own.coordinator)
    if own.cluster and any(value is not None for value in named):
        raise ConfigError("--cluster finds out --processes, --process and --coordinator by itself")
    named_join = lambda: join(own.coordinator, own.processes, own.process, wait=own.wait)
    team = join_cluster(own.wait) if own.cluster else named_join()
    if team.processes == 1:
        yield Where(_mesh(own.devices) if (own.devices or 1) > 1 else None, team)
        return
    words = LastWords(
        f"moml: process {team.process} of {team.processes} was ended: it was killed, or another "
        f"one was lost; what was saved last is good, go on with: moml resume {folder}"
    )
    try:
        same_command(team, type(own).__name__.lower(), own.devices)
        yield Where(_mesh(own.devices), team)
    except LostProcess as error:
        words.unsay()
        print(f"moml: {error}, go on with: moml resume {folder}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)  # an orderly end would wait for the one that is lost
    except (Exception, KeyboardInterrupt) as error:
        sentence, code = _told(error)
        words.unsay()
        words = LastWords(sentence)  # the others may be ending too, and JAX may not wait
        if team.all_end(str(error) or repr(error), ALL_END):
            raise
        words.unsay()
        print(sentence, file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(code)  # an orderly end would wait for the others, who go on
    else:
        team.all_end()
    finally:
        words.unsay()


def _told(error: BaseException) -> tuple[str, int]:
    """What a process says at its end, and its exit code."""
    match error:
        case MomlError():
            return f"moml: {error}", error.exit_code
        case KeyboardInterrupt():
            return "moml: interrupted", 130
        case _:
            return traceback.format_exc().rstrip(), 1


def _mesh(devices: int | None) -> Any:
    from moml.runtime.mesh import mesh

    return mesh(devices)
