"""Downloads: resumed where they broke off, checked, and there whole or not at all."""

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from moml.errors import DataError

Progress = Callable[[int, int], None]  # bytes that are there, bytes in all
CHUNK = 1 << 18


class _Broken(Exception):
    """It broke off; what came is kept, and another try may help."""


class _Refused(Exception):
    """An answer that another try would not change."""


def download(
    addresses: Sequence[str],
    target: Path,
    size: int,
    sha256: str,
    progress: Progress | None = None,
    tries: int = 5,
    pause: float = 1.0,
    timeout: float = 30.0,
) -> Path:
    """Bring one file from the first of `addresses` that has it.

    What comes is kept in `target`.partial, and a later call goes on from there if the server can.
    The file gets its name when it has `size` bytes and the checksum `sha256`. An address is given
    up after `tries` tries in a row that brought nothing new.
    """
    partial = target.with_name(target.name + ".partial")
    failures: list[str] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for address in addresses:
            left, most = tries, 0
            while left:
                try:
                    resumed = _receive(address, partial, size, progress, timeout)
                    _compare(partial, sha256, resumed)
                except (_Broken, _Refused) as error:
                    failures.append(f"{address}: {error}")
                    have = partial.stat().st_size if partial.exists() else 0
                    again = isinstance(error, _Broken)
                    left = 0 if not again else tries if have > most else left - 1
                    most = max(most, have)
                    time.sleep(pause if left else 0)
                else:
                    os.replace(partial, target)
                    return target
    except OSError as error:
        raise DataError(f"cannot write {partial}: {error.strerror or error}") from error
    raise DataError(f"cannot fetch {target.name}: {'; '.join(dict.fromkeys(failures))}")


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compare(partial: Path, sha256: str, resumed: bool) -> None:
    """Drop a file with another checksum; if it was begun earlier, that part may be to blame."""
    given = digest(partial)
    if given != sha256:
        partial.unlink()
        kind = _Broken if resumed else _Refused
        raise kind(f"the file's SHA-256 is {given}, the publisher's {sha256}")


def _receive(
    address: str, partial: Path, size: int, progress: Progress | None, timeout: float
) -> bool:
    """Bring `partial` to `size` bytes; True if some of them were there before."""
    have = partial.stat().st_size if partial.exists() else 0
    if have > size:
        partial.unlink()
        have = 0
    if have == size:
        return True
    with _ask(address, have, timeout) as response:
        resumed = have > 0 and response.status == 206
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise _Refused(f"asked for the bytes from {have:,}, it sent others")
        done = have if resumed else 0
        with open(partial, "ab" if resumed else "wb") as file:
            while block := _block(response):
                done += len(block)
                if done > size:
                    file.truncate(0)
                    raise _Refused(f"it sends more than {size:,} bytes")
                file.write(block)
                if progress is not None:
                    progress(done, size)
            file.flush()
            os.fsync(file.fileno())
    if done < size:
        raise _Broken(f"it broke off after {done:,} of {size:,} bytes")
    return resumed


def _ask(address: str, have: int, timeout: float) -> Any:
    request = urllib.request.Request(address, headers={"User-Agent": "moml"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        kind = _Broken if error.code >= 500 else _Refused
        raise kind(f"HTTP {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise _Broken(str(getattr(error, "reason", error))) from error


def _block(response: Any) -> bytes:
    try:
        return response.read1(CHUNK)
    except (http.client.HTTPException, OSError) as error:
        raise _Broken(f"the connection broke: {error}") from error
