"""The folder of a run: who works in it, with which versions, and its log."""

import json
import logging
import os
import platform
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from moml.errors import ConfigError

TIME = "%Y-%m-%dT%H:%M:%SZ"
PACKAGES = ("moml", "jax", "jaxlib", "numpy", "optax")
DETERMINISTIC = ("--xla_gpu_deterministic_ops", "--xla_gpu_exclude_nondeterministic_ops")


class Lock:
    """One process at a time in a run's folder; the kernel lets go when that process dies.

    The file stays, as its being there means nothing: only a held lock does.
    """

    def __init__(self, folder: Path | str, command: str | None = None):
        self.path = Path(folder) / "lock"
        self.command = shlex.join(sys.argv) if command is None else command

    def __enter__(self) -> "Lock":
        import fcntl

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "a+")
        except OSError as error:
            raise ConfigError(f"cannot lock {self.path.parent}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            time.sleep(0.1)  # the other may have it for a moment only, and not have signed yet
            self._file.seek(0)
            signed = self._file.read()
            self._file.close()
            if not isinstance(error, BlockingIOError):
                raise ConfigError(f"cannot lock {self.path}: {error.strerror}") from error
            raise ConfigError(f"{self.path.parent} is in use by {_holder(signed)}") from error
        self._file.truncate(0)
        mine = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": self.command,
            "started": time.strftime(TIME, time.gmtime()),
        }
        self._file.write(json.dumps(mine) + "\n")
        self._file.flush()
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()  # and with it the lock


def in_use(folder: Path | str) -> bool:
    """Whether a process works in a run's folder now."""
    import fcntl

    try:
        with open(Path(folder) / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock: nobody ever worked here
        pass
    return False


def _holder(signed: str) -> str:
    try:
        who = json.loads(signed)
        place = f"process {who['pid']} on {who['host']}"
        return f"{place}, started {who['started']}: {who['command']}"
    except (ValueError, LookupError, TypeError):
        return "another process"


def versions() -> dict[str, Any]:
    """All that the bits of a result may depend on, besides configuration and data."""
    device = jax.devices()[0]
    config: Any = jax.config
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        **{name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.device_kind,
        "devices": jax.device_count(),
        "x64": bool(config.jax_enable_x64),
        "matmul_precision": config.jax_default_matmul_precision,
        "xla_flags": flags,
        "deterministic": device.platform == "cpu" or _deterministic(flags),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # on the path, not installed
        return "not installed"


def _deterministic(flags: str) -> bool:
    """Whether XLA_FLAGS ask for kernels that give the same bits each time; the last word counts."""
    asked = dict.fromkeys(DETERMINISTIC, False)
    for flag in flags.split():
        name, _, value = flag.partition("=")
        if name in asked:
            asked[name] = value.lower() in ("", "true", "1")
    return any(asked.values())


@contextmanager
def open_log(folder: Path | str) -> Iterator[logging.Logger]:
    """While open, the `moml` logger appends timed lines to log.txt; warnings show as before."""
    logger = logging.getLogger("moml")
    try:
        handler = logging.FileHandler(Path(folder) / "log.txt", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write a log in {folder}: {error.strerror}") from error
    form = logging.Formatter("%(asctime)s %(levelname)s %(message)s", TIME)
    form.converter = time.gmtime
    handler.setFormatter(form)
    handlers: list[logging.Handler] = [handler]
    if logging.lastResort:
        handlers.append(logging.lastResort)  # warnings to standard error
    level, up = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False  # libraries put handlers of their own on the root, which tell all
    for one in handlers:
        logger.addHandler(one)
    try:
        yield logger
    finally:
        for one in handlers:
            logger.removeHandler(one)
        logger.setLevel(level)
        logger.propagate = up
        handler.close()
