"""Files that appear complete or not at all, and files that are opened only if they are plain."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter, FileIO
from pathlib import Path

SHARED = 0o666  # as the umask says: for what is made to be shown, such as rows and pages


@contextmanager
def atomic_write(
    path: str | os.PathLike[str], permissions: int = 0o600
) -> Iterator[BufferedWriter]:
    """Open a temporary file beside `path`, which takes its place when the block ends.

    The temporary file has a random name and is created exclusively, without following links. It is
    synced before it is renamed, and removed if the block raises. Others cannot read it, unless
    `permissions` are `SHARED`.
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


def plain_handle(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file with mode 0600; a link, pipe or device is an OSError, and is not waited for."""
    try:
        handle = os.open(path, flags | _NO_FOLLOW | _NO_WAIT, 0o600)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise
        raise OSError(errno.ELOOP, NOT_PLAIN, os.fspath(path)) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ELOOP, NOT_PLAIN, os.fspath(path))
    return handle


def open_plain(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a plain file for reading."""
    return open(plain_handle(path, os.O_RDONLY), "rb")


def append_plain(path: str | os.PathLike[str]) -> FileIO:
    """Open a plain file for reading and appending, without a buffer; it is made if need be."""
    return open(plain_handle(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab+", buffering=0)


def read_plain(path: str | os.PathLike[str]) -> str:
    """The text of a plain file."""
    with open_plain(path) as file:
        return file.read().decode()


NOT_PLAIN = "not a plain file"
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer would block
