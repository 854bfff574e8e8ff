"""The persistent cache of compiled programs: on for commands, never for the library.

Programs are executed as they are read, so a folder is used only if it belongs to the user and
nobody else may write to it. They hold no data: arrays of tasks and tables are their arguments.
"""

import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import jax
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface

VARIABLE, OFF = "MOML_CACHE", "off"
LIMIT = 256 * 10**6  # bytes; a training needs some 2 MB
ENDING = ".program"
SEAL = hashlib.sha256().digest_size


def folder() -> Path | None:
    """The folder that MOML_CACHE names, or moml in the user's cache folder; None: off."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return None if given == OFF else Path(given).expanduser().absolute()
    usual = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (usual if usual.is_absolute() else Path.home() / ".cache") / "moml"
    except RuntimeError:  # a user without a home
        return None


def start() -> str:
    """Use the cache for all that this process compiles from now on; why not, if that needs saying.

    A cache that is set up in JAX already, by JAX_COMPILATION_CACHE_DIR, stays in use. A folder that
    cannot be made is not used, nor one that is not the user's alone.
    """
    place = folder()
    if place is None or jax.config.values["jax_compilation_cache_dir"] is not None:
        return ""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        wrong = shared(place)
    except OSError:
        return ""
    if wrong:
        return f"compiled programs are not kept: {place} must be {wrong}, or set {VARIABLE}={OFF}"
    usual, mine = getattr(compilation_cache, "get_file_cache", None), str(place)
    if usual is None:
        return "compiled programs are not kept: this version of JAX has no place for our cache"
    ours = lambda path: (Entries(place), path) if path == mine else usual(path)
    compilation_cache.get_file_cache = ours
    jax.config.update("jax_compilation_cache_dir", mine)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # reading is faster
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # they have no bound
    compilation_cache.reset_cache()
    return ""


def shared(place: Path) -> str:
    """What must hold of a folder that others could put programs into; empty if they cannot."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "a folder, not a link"
    if os.name != "posix":
        return ""
    if found.st_uid != os.geteuid():
        return "your own folder"
    return "writable for you alone" if found.st_mode & 0o022 else ""


def entries(place: Path) -> Iterator[os.DirEntry[str]]:
    """The programs in a folder."""
    with suppress(OSError), os.scandir(place) as found:
        yield from (entry for entry in found if entry.name.endswith(ENDING))


def describe() -> str:
    """Where the cache is and how large, for `moml doctor`."""
    place = folder()
    if (theirs := jax.config.values["jax_compilation_cache_dir"]) not in (None, str(place)):
        return f"JAX's own, {theirs}"
    if place is None:
        return f"off ({VARIABLE}={os.environ.get(VARIABLE, '')})"
    if not os.access(place, os.W_OK):
        return f"not kept: cannot write to {place}"
    if wrong := shared(place):
        return f"not kept: {place} must be {wrong}"
    sizes = [entry.stat().st_size for entry in entries(place)]
    return f"{place}: {len(sizes)} programs, {sum(sizes) / 1e6:.1f} of {LIMIT / 1e6:.0f} MB"


class Entries(CacheInterface):
    """Programs in a folder by JAX's keys, each under a seal; the least recently used go first.

    JAX calls `get` and `put`. A damaged entry is removed; what cannot be written is left out.
    """

    def __init__(self, place: Path) -> None:
        self._path = place  # JAX shows it
        self._used = self._prune()

    def get(self, key: str) -> bytes | None:
        """The program of a key, if there is a good one."""
        file = self._file(key)
        try:
            content = file.read_bytes()
        except OSError:
            return None
        program = content[SEAL:]
        good = content[:SEAL] == _seal(key, program)
        with suppress(OSError):
            os.utime(file) if good else file.unlink()  # used now, or damaged
        return program if good else None

    def put(self, key: str, value: bytes) -> None:
        """Keep a program; it appears complete or not at all, and only the user may read it."""
        with suppress(OSError):
            handle, temporary = tempfile.mkstemp(dir=self._path, suffix=ENDING)
            with open(handle, "wb") as file:
                file.write(_seal(key, value) + value)
            os.replace(temporary, self._file(key))
            self._used += SEAL + len(value)
            if self._used > LIMIT:
                self._used = self._prune()

    def _file(self, key: str) -> Path:
        return self._path / f"{key}-{_machine()}{ENDING}"

    def _prune(self) -> int:
        """Remove the least recently used programs; the number of bytes of the others."""
        found = []
        for entry in entries(self._path):
            with suppress(OSError):
                about = entry.stat()
                found.append((about.st_mtime, about.st_size, entry.path))
        used = sum(size for _, size, _ in found)
        if used > LIMIT:
            for _, size, path in sorted(found):
                if used <= 0.75 * LIMIT:
                    break
                with suppress(OSError):
                    os.unlink(path)
                    used -= size
        return used


def _seal(key: str, program: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + program).digest()


@cache
def _machine() -> str:
    """The processor: a home may be shared by machines whose instructions differ."""
    text = platform.machine() + platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        text += next((x for x in lines if x.startswith(("flags", "Features"))), "")
    return hashlib.sha256(text.encode()).hexdigest()[:8]
