"""Files that appear complete or not at all, and files that are read only if they are plain."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path


@contextmanager
def atomic_write(
    path: str | os.PathLike[str], permissions: int = 0o666
) -> Iterator[BufferedWriter]:
    """Open a temporary file beside `path`, which takes its place when the block ends.

    The temporary file has a random name and is created exclusively, without following links. It is
    synced before it is renamed, and removed if the block raises.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    create = lambda name, flags: os.open(name, flags | _NO_FOLLOW, permissions)
    created = open(temporary, "xb", opener=create)  # noqa: SIM115
    try:
        with created as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def open_plain(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading; a link, pipe or device is an OSError."""
    handle = os.open(path, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ELOOP, "not a plain file", os.fspath(path))
    return open(handle, "rb")


_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer would block
