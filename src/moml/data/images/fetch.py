"""Downloads with pooch: resumed, verified by SHA-256, and renamed to their target at the end."""

import io
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from moml.errors import DataError

Progress = Callable[[int, int], None]  # bytes received, bytes in total
CHUNK = 1 << 16


def download(
    addresses: Sequence[str],
    target: Path,
    size: int,
    sha256: str,
    progress: Progress | None = None,
    tries: int = 5,
    pause: float = 1.0,
) -> Path:
    """Download one file from the first of `addresses` that has it.

    Bytes are received in `target`.partial, and a later call resumes there if the server can. The
    file is renamed once its checksum is `sha256`. An address is given up after `tries` attempts in
    a row that brought no further bytes.
    """
    try:
        import pooch
        from requests import RequestException
    except ImportError as error:
        raise DataError("downloads need pooch: pip install 'moml[data]'") from error
    pooch.get_logger().setLevel("WARNING")
    part, failures = target.with_name(f"{target.name}.partial"), []

    def receive(address: str, output: str, _: object) -> None:
        if _size(part) != size:
            _append(address, part, size, progress)
        os.replace(part, output)  # which pooch verifies and renames, or removes

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for address in addresses:
            left, most = tries, 0
            while left:
                resumed = _size(part) > 0
                try:
                    pooch.retrieve(address, sha256, target.name, target.parent, downloader=receive)
                    return target
                except RequestException as error:
                    failures.append(f"{address}: {error}")
                    again = getattr(error.response, "status_code", 500) >= 500
                except ValueError as error:  # a wrong checksum: the part that was there?
                    failures.append(f"{address}: {error}")
                    again = resumed
                left = 0 if not again else tries if _size(part) > most else left - 1
                most = max(most, _size(part))
                time.sleep(pause if left else 0)
    except OSError as error:
        raise DataError(f"cannot write {part}: {error.strerror or error}") from error
    raise DataError(f"cannot fetch {target.name}: {'; '.join(dict.fromkeys(failures))}")


def _append(address: str, part: Path, size: int, progress: Progress | None) -> None:
    """Receive the bytes that `part` lacks."""
    from pooch import HTTPDownloader
    from requests import ConnectionError, Response

    class Output(io.FileIO):
        def write(self, block: bytes) -> int:  # type: ignore[override]
            if self.tell() + len(block) > size:
                self.truncate(0)
                raise ValueError(f"the file must have {size:,} bytes; got more than that")
            written = super().write(block)
            if progress is not None:
                progress(self.tell(), size)
            return written

    start = _size(part) if _size(part) < size else 0

    def check_range(response: Response, **_: object) -> None:
        if response.status_code == 200:  # the whole file, whatever was asked for
            output.truncate(0)
        given = response.headers.get("Content-Range", "")
        if response.status_code == 206 and not given.startswith(f"bytes {start}-"):
            output.truncate(0)
            raise ValueError(f"asked for the bytes from {start:,}; got {given}")

    headers = {"User-Agent": "moml", "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={start}-"} if start else {}
    hooks = {"response": check_range}
    with Output(part, "ab" if start else "wb") as output:
        HTTPDownloader(chunk_size=CHUNK, headers=headers, hooks=hooks)(address, output, None)
        os.fsync(output.fileno())
    if _size(part) < size:
        raise ConnectionError(f"it broke off after {_size(part):,} of {size:,} bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
