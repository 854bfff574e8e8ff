"""The folder of a run: what may be in it, its lock, the versions in use, and its log."""

import json
import logging
import os
import platform
import re
import shlex
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from io import FileIO, TextIOWrapper
from pathlib import Path

import jax

from moml.atomic import append_plain, open_plain
from moml.errors import ConfigError
from moml.types import Record

TIME = "%Y-%m-%dT%H:%M:%SZ"
PACKAGES = ("moml", "jax", "jaxlib", "numpy", "optax")
DETERMINISTIC = ("--xla_gpu_deterministic_ops", "--xla_gpu_exclude_nondeterministic_ops")
OWN = (  # what moml writes into the folder of a run, of its memories, or of a federation's server
    r"(lock|log\.txt|run\.json|config\.toml|metrics\.jsonl|checkpoints|memory|tensorboard|part-\d+"
    r"|logs\.json|clients\.json|about\.json|rows|undo-.*|rounds\.jsonl|privacy\.json|w\.safetensors)"
)
KINDS = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def check_plain(folder: Path, names: str = OWN) -> None:
    """Refuse a folder where a name of moml, or anything below it, is not a plain file or folder.

    A link would let a run that somebody else has made write over other files, and a pipe is waited
    for. The folder itself may be a link.
    """
    try:
        for path in (folder / name for name in os.listdir(folder) if re.fullmatch(names, name)):
            with suppress(FileNotFoundError):  # a run that is going on removes old files
                mode = path.lstat().st_mode
                if stat.S_ISDIR(mode):
                    check_plain(path, ".*")
                elif not stat.S_ISREG(mode):
                    kind = KINDS.get(stat.S_IFMT(mode), "a device")
                    raise ConfigError(f"a run must consist of plain files; {path} is {kind}")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}") from error


class Lock:
    """A lock on the folder of a run; the kernel releases it when the process dies.

    The file stays: only a lock that is held counts. What moml has in the folder must be plain.
    """

    def __init__(self, folder: Path | str, command: str | None = None):
        self.path = Path(folder) / "lock"
        self.command = shlex.join(sys.argv) if command is None else command

    def __enter__(self) -> "Lock":
        import fcntl

        check_plain(self.path.parent)
        try:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            self._file: FileIO = append_plain(self.path)
        except OSError as error:
            raise ConfigError(f"cannot lock {self.path.parent}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            time.sleep(0.1)  # the other process may not have written its name yet
            self._file.seek(0)
            holder = _holder(self._file.read().decode(errors="replace"))
            self._file.close()
            if not isinstance(error, BlockingIOError):
                raise ConfigError(f"cannot lock {self.path}: {error.strerror}") from error
            raise ConfigError(f"{self.path.parent} is in use by {holder}") from error
        self._file.seek(0)
        if self._file.read(1) not in (b"", b"{"):
            self._file.close()
            raise ConfigError(f"{self.path} must be the lock of a run; it is another file")
        mine = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": self.command,
            "started": time.strftime(TIME, time.gmtime()),
        }
        with suppress(OSError):  # a full disk: nobody will read who it was
            self._file.truncate(0)
            self._file.write(json.dumps(mine).encode() + b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()  # which releases the lock


def in_use(folder: Path | str) -> bool:
    """Return whether a process holds the lock of a folder."""
    import fcntl

    try:
        with open_plain(Path(folder) / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there never was a lock
        pass
    return False


def _holder(text: str) -> str:
    try:
        who = json.loads(text)
        place = f"process {who['pid']} on {who['host']}"
        return f"{place}, started {who['started']}: {who['command']}"
    except (ValueError, LookupError, TypeError):
        return "another process"


def versions() -> Record:
    """Return all that the bits of a result may depend on, besides configuration and data."""
    device, config = jax.devices()[0], jax.config.values
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        **{name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.device_kind,
        "devices": jax.device_count(),
        "x64": bool(config["jax_enable_x64"]),
        "matmul_precision": config["jax_default_matmul_precision"],
        "xla_flags": flags,
        "deterministic": device.platform == "cpu" or _deterministic(flags),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # on the path, not installed
        return "not installed"


def _deterministic(flags: str) -> bool:
    """Whether XLA_FLAGS ask for deterministic kernels; the last value of a flag counts."""
    asked = dict.fromkeys(DETERMINISTIC, False)
    for flag in flags.split():
        name, _, value = flag.partition("=")
        if name in asked:
            asked[name] = value.lower() in ("", "true", "1")
    return any(asked.values())


class _Log(logging.StreamHandler[TextIOWrapper]):
    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk: the error is raised where something is saved."""


@contextmanager
def open_log(folder: Path | str) -> Iterator[logging.Logger]:
    """Let the `moml` logger append timed lines to log.txt; warnings still go to standard error."""
    logger = logging.getLogger("moml")
    try:
        file = append_plain(Path(folder) / "log.txt")
    except OSError as error:
        raise ConfigError(f"cannot write a log in {folder}: {error.strerror}") from error
    handler = _Log(TextIOWrapper(file, "utf-8", write_through=True))
    form = logging.Formatter("%(asctime)s %(levelname)s %(message)s", TIME)
    form.converter = time.gmtime
    handler.setFormatter(form)
    handlers = [one for one in (handler, logging.lastResort) if one]  # the second: warnings
    level, up = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False  # libraries add handlers to the root logger, which show every line
    for one in handlers:
        logger.addHandler(one)
    try:
        yield logger
    finally:
        for one in handlers:
            logger.removeHandler(one)
        logger.setLevel(level)
        logger.propagate = up
        file.close()
