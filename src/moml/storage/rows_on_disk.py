"""Memories on disk: one row per task, and logs to go back to a checkpoint.

MEMORY/  about.json        what the rows are: how many, of which leaves, of which run
         rows              see `moml.storage.rows_file`
         undo-0000012000-5f0c3a9e   the rows at that checkpoint, of those changed since
         lock              the process that uses them

To go back to a checkpoint, the logs are written over the rows, the newest log first. Only the logs
of the newest checkpoints are kept. The name of a log ends with a token, which its checkpoint notes:
a run and its copy, which share the rows, each go back by their own logs.
"""

import json
import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from moml.atomic import atomic_write, read_plain
from moml.errors import CheckpointError, ConfigError, MomlError, reason
from moml.storage.checkpoint import newest_info
from moml.storage.files import check_space, writable_folder, write_text
from moml.storage.folder import Lock
from moml.storage.manifest import sync_folder
from moml.storage.rows_file import Layout, RowsFile
from moml.storage.undo import Undo, empty, entries_in, entries_of, records
from moml.types import Record

FORMAT = 3
log = logging.getLogger("moml")


class RowsOnDisk:
    """The rows of n tasks in a folder, for the run in the folder `owner`, which holds its lock.

    The folder of the rows has a lock too, held from the first access until `close`.
    """

    def __init__(self, folder: Path, owner: Path, n: int, layout: Layout):
        self.folder, self.owner, self.n, self.layout = folder, owner.resolve(), n, layout
        self._inside = folder.resolve().is_relative_to(self.owner)
        self._lock: Lock | None = None
        self._file: RowsFile | None = None
        self._undo: Undo | None = None
        self._logged = np.zeros(n, bool)  # of each task, whether the open log has its row
        self._id = ""

    @property
    def _salt(self) -> int:
        return int(self._id, 16)

    def pack(self, leaves: Sequence[np.ndarray], ids: np.ndarray) -> np.ndarray:
        """Return the rows of these tasks, the first of the leaves, sealed for this store."""
        return self.layout.pack(leaves, ids, self._salt)

    def _open(self, create: int = 0) -> RowsFile:
        return RowsFile(self.folder / "rows", self.layout.stride, self._salt, create)

    def _since(self, name: str) -> list[Iterator[tuple[np.ndarray, np.ndarray]]]:
        """The entries of each log from that name on, the newest log first."""
        logs = [path for path in self.logs() if path.name >= name]
        given = self.layout.stride, self._salt
        return [records(path, *given, logs[i + 1 :]) for i, path in enumerate(logs)][::-1]

    def logs(self) -> list[Path]:
        """Return the logs in the order of their checkpoints."""
        return sorted(self.folder.glob(f"undo-{'[0-9]' * 10}-*"))

    def _acquire(self) -> None:
        if self._lock is None:
            self._lock = Lock(self.folder).__enter__()

    def check_new(self) -> None:
        """Refuse a folder that a new run cannot use; no file is changed."""
        with _errors(self.folder, "make"):
            self._check(new=True)

    def create(self) -> None:
        """Set all rows to zeros: before the first visit."""
        with _errors(self.folder, "make"):
            self._acquire()
            self._check()
            self._id = secrets.token_hex(8)
            self._write_about()
            self._drop(self.logs())
            self._file = self._open(create=self.n)
            sync_folder(self.folder)

    def _check(self, *, new: bool = False) -> None:
        """Refuse a folder with rows of another run (a new run has none yet), or without space."""
        rows = self.folder / "rows"
        if (self.folder / "about.json").exists():
            run = self._about()["run"]
            if not self._inside and (new or run != str(self.owner)):
                raise ConfigError(
                    f"{self.folder} holds the memories of {run}: give another folder, or remove it"
                )
        elif rows.exists():
            raise ConfigError(f"{self.folder} holds other files: give another folder")
        writable_folder(self.folder, 0o700)
        have = rows.stat().st_size if rows.exists() else 0
        check_space(self.folder, self.n * self.layout.stride - have)

    def _write_about(self) -> None:
        about = {"format": FORMAT, "id": self._id, "run": str(self.owner)}
        text = json.dumps(about | {"tasks": self.n, "row": self.layout.names}, indent=1)
        write_text(text + "\n", self.folder / "about.json")

    def _about(self, *, lock: bool = False) -> Record:
        """What about.json says; with `lock`, no other process changes it from now on."""
        path = self.folder / "about.json"
        try:
            if lock and path.exists():  # a lock would make a folder that does not exist
                self._acquire()
            about = json.loads(read_plain(path))
            self._id = about["id"]
            if not 0 <= self._salt < 1 << 64:
                raise ValueError(f"id = {self._id}")
            return {name: about[name] for name in ("format", "id", "run", "tasks", "row")}
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.folder} holds no memories (about.json)") from error
        except MomlError:
            raise
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckpointError(f"cannot read {path}: {error}") from error

    def verify(self, info: Record) -> str | None:
        """Return why the rows cannot go back to a checkpoint with these notes, or None."""
        try:
            with _errors(self.folder, "read"):
                about = self._about(lock=True)
                self._check_same(about)
                id_, name = info.get("rows", ["", ""])
                if id_ != about["id"]:
                    return f"the memories in {self.folder} are those of another run"
                logs = self.logs()
                if self.folder / name not in logs:
                    run = about["run"]
                    last = "" if run == str(self.owner) else f" ({run} had them last)"
                    return f"the memories in {self.folder} cannot go back so far{last}"
                for entries in self._since(name):
                    for _ in entries:
                        pass
        except CheckpointError as error:
            return str(error)
        return None

    def _check_same(self, about: Record) -> None:
        """Refuse rows of another format, number or layout than this run has."""
        about = about | {"row": ", ".join(about["row"])}
        about |= {"bytes": (self.folder / "rows").stat().st_size}
        here = {"format": FORMAT, "tasks": self.n, "row": ", ".join(self.layout.names)}
        for name, value in (here | {"bytes": self.n * self.layout.stride}).items():
            if about[name] != value:
                stored = f"{self.folder} holds memories with {name} = {about[name]}"
                raise CheckpointError(f"{stored}; this run needs {name} = {value}")

    def back_to(self, step: int) -> None:
        """Undo all that was written since a checkpoint, for which `verify` returned None."""
        with _errors(self.folder, "restore"):
            about = self._about(lock=True)
            if about["run"] != str(self.owner):  # the run was renamed or copied
                if not self._inside:
                    message = "the memories in %s were those of %s; now %s goes on with them"
                    log.warning(message, self.folder, about["run"], self.owner)
                self._write_about()
            self._file = self._open()
            name = f"undo-{step:010d}"
            for entries in self._since(name):
                for ids, rows in entries:
                    order = np.argsort(ids)
                    self._file.write(ids[order], rows[order])
            self._file.sync()  # before the logs are removed
            own, *later = [path for path in self.logs() if path.name >= name]
            for path in (*reversed(later), own):  # first emptied: a missing one would be noticed
                empty(path)
            self._drop(reversed(later))
            self._close_log()
            self._begin_log(own)  # never missing: the checkpoint needs it by its name

    def read_saved(self, info: Record, ids: np.ndarray) -> np.ndarray:
        """Return the rows of some tasks, ids ascending, at a checkpoint with these notes.

        No file is changed.
        """
        if problem := self.verify(info):
            raise CheckpointError(problem)
        with _errors(self.folder, "read"):
            self._file = self._file or self._open()
            rows = self._file.read(ids)
            for entries in self._since(info["rows"][1]):
                for some, old in entries:
                    known = np.isin(some, ids)
                    rows[np.searchsorted(ids, some[known])] = old[known]
        return rows

    def saving(self, step: int, kept: Sequence[int] = ()) -> Record:
        """Return the notes for a checkpoint of the rows as they are now.

        From now on the rows can go back to this checkpoint, and to those that are `kept`.
        """
        path = self.folder / f"undo-{step:010d}-{secrets.token_hex(4)}"
        oldest = f"undo-{min(*kept, step):010d}" if kept else ""
        with _errors(self.folder, "write"):
            self.file.sync()
            self._begin_log(path)
            self._drop(each for each in self.logs() if each.name < oldest)
        return {"rows": [self._id, path.name]}

    def _drop(self, logs: Iterable[Path]) -> None:
        """Remove logs from one end, each synced before the next: a gap would not be noticed."""
        for path in logs:
            path.unlink()
            sync_folder(self.folder)

    def _begin_log(self, path: Path) -> None:
        new = Undo(path, self._salt)
        old, self._undo = self._undo, new
        try:
            sync_folder(self.folder)
            if old is not None:
                old.end(path, self.layout.stride)
        finally:
            if old is not None:
                old.close()
        self._logged[:] = False

    @property
    def file(self) -> RowsFile:
        """The rows; the store must be open."""
        if self._file is None:
            raise ValueError("the store is not open")
        return self._file

    def read(self, ids: np.ndarray) -> np.ndarray:
        """Return the sealed rows of some tasks, ids ascending."""
        with _errors(self.folder, "read"):
            return self.file.read(ids)

    def write(self, ids: np.ndarray, new: np.ndarray, old: np.ndarray) -> None:
        """Write sealed rows over the old ones, which are logged first."""
        with _errors(self.folder, "write"):
            first = ~self._logged[ids]
            if self._undo is not None and first.any():
                self._undo.add(ids[first], old[first])
                self._logged[ids] = True
            self.file.write(ids, new)

    def forget(self, ids: Sequence[int]) -> None:
        """Set the rows of some tasks to zeros, in the file and in every log; can be repeated."""
        which = np.unique(np.asarray(ids, np.int64))
        with closing(self), _errors(self.folder, "write"):
            about = self._about(lock=True)
            _, info = newest_info(self.owner / "checkpoints") or (None, {})
            own = self._inside or about["run"] == str(self.owner)
            if not own and info.get("rows", [""])[0] != about["id"]:
                raise CheckpointError(f"{self.folder} holds the memories of {about['run']}")
            self._check_same(about)
            for partial in self.folder.glob(".undo-*"):  # of a process that was killed
                partial.unlink()
            for path in self.logs():
                with atomic_write(path) as file:
                    for some, rows in entries_in(path, self.layout.stride, self._salt):
                        rows[np.isin(some, which)] = 0
                        file.write(entries_of(path, some, rows, self._salt).data)
            self._file = self._open()
            self._file.write(which, np.zeros((len(which), self.layout.stride), np.uint8))
            self._file.sync()
            sync_folder(self.folder)

    def close(self) -> None:
        """Close the files, and release the lock."""
        self._close_log()
        if self._file is not None:
            self._file.close()
        if self._lock is not None:
            self._lock.__exit__()
        self._file = self._lock = None

    def _close_log(self) -> None:
        if self._undo is not None:
            self._undo.close()
        self._undo = None


@contextmanager
def _errors(folder: Path, what: str) -> Iterator[None]:
    """Turn an error of the system into one line."""
    try:
        yield
    except OSError as error:
        why = reason(error)
        why = why[:1].lower() + why[1:]
        raise CheckpointError(f"cannot {what} the memories in {folder}: {why}") from error
