"""Memories on disk: one row a task, and what it takes to go back to a checkpoint.

MEMORY/  about.json        what the rows are: how many, of which leaves, of which run
         rows              see `moml.storage.rows_file`
         undo-0000012000-5f0c3a9e   the rows as they were at that checkpoint, of those changed since
         lock              who is at work here

To go back to a checkpoint, what the logs hold is written over the rows, the newest log first.
Only the logs of the newest checkpoints are kept. A log bears a token, which its checkpoint notes:
of two runs that were one, each goes back by its own.
"""

import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from moml.errors import CheckpointError, ConfigError
from moml.storage.files import writable_folder, write_text
from moml.storage.folder import Lock
from moml.storage.manifest import sync_folder
from moml.storage.rows_file import Layout, RowsFile
from moml.storage.undo import Undo, record_of, records

FORMAT = 1
log = logging.getLogger("moml")


class RowsOnDisk:
    """The rows of n tasks in a folder, for the run in the folder `owner`, which holds its lock.

    The folder of the rows has a lock too, held from the first look at them until `close`.
    """

    def __init__(self, folder: Path, owner: Path, n: int, layout: Layout):
        self.folder, self.owner, self.n, self.layout = folder, owner.resolve(), n, layout
        self._lock: Lock | None = None
        self._file: RowsFile | None = None
        self._undo: Undo | None = None
        self._logged = np.zeros(n, bool)  # of each task, whether the open log has its row
        self._id = ""

    def steps(self) -> list[int]:
        """The checkpoints that have a log."""
        return [step for step, _ in self._logs()]

    def _logs(self) -> list[tuple[int, str]]:
        """The logs by step and token, in order."""
        found = self.folder.glob(f"undo-{'[0-9]' * 10}-*")
        names = (path.name.split("-", 2) for path in found)
        return sorted((int(step), token) for _, step, token in names)

    def _log(self, step: int, token: str) -> Path:
        return self.folder / f"undo-{step:010d}-{token}"

    def _hold(self) -> None:
        if self._lock is None:
            self._lock = Lock(self.folder).__enter__()

    def _held(self) -> dict[str, Any]:
        """What the store says of itself, which no one else changes from now on."""
        self._about()  # a lock would make a folder that is not there
        self._hold()
        return self._about()

    def check_new(self) -> None:
        """Before a run begins, refuse a folder that its rows cannot go to; no file is changed."""
        with _told(self.folder, "make"):
            self._check(new=True)

    def create(self) -> None:
        """All rows anew, as zeros: before the first visit."""
        with _told(self.folder, "make"):
            self._hold()
            self._check()
            self._id = secrets.token_hex(8)
            self._tell()
            for each in self._logs():
                self._log(*each).unlink()
            self._file = RowsFile.create(self.folder / "rows", self.n, self.layout.stride)
            self._file.sync()
            sync_folder(self.folder)

    def _check(self, *, new: bool = False) -> None:
        """Refuse a folder with rows of others (a new run has none of its own), or without room."""
        rows = self.folder / "rows"
        if (self.folder / "about.json").exists():
            run = self._about()["run"]
            if not self._inside and (new or run != str(self.owner)):
                raise ConfigError(
                    f"{self.folder} holds the memories of {run}: give another folder, or remove it"
                )
        elif rows.exists():
            raise ConfigError(f"{self.folder} holds other files: give another folder")
        writable_folder(self.folder)
        have = rows.stat().st_size if rows.exists() else 0
        _check_room(self.folder, self.n * self.layout.stride - have)

    @property
    def _inside(self) -> bool:
        """Whether the rows are in the run's own folder."""
        return self.folder.resolve().is_relative_to(self.owner)

    def _tell(self) -> None:
        about: dict[str, Any] = {"format": FORMAT, "id": self._id, "run": str(self.owner)}
        about |= {"tasks": self.n, "row": self.layout.names}
        write_text(json.dumps(about, indent=1) + "\n", self.folder / "about.json")

    def _about(self) -> dict[str, Any]:
        try:
            about = json.loads((self.folder / "about.json").read_text())
            about = {name: about[name] for name in ("format", "id", "run", "tasks", "row")}
            return about | {"row": tuple(about["row"])}
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.folder} holds no memories (about.json)") from error
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckpointError(f"cannot read {self.folder / 'about.json'}: {error}") from error

    def flaw(self, info: dict[str, Any]) -> str | None:
        """Why the rows cannot go back to a checkpoint that has these notes; None if they can."""
        try:
            about = self._held()
            if problem := self._differs(about):
                return problem
            id_, *own = info.get("rows", [""])
            if id_ != about["id"]:
                return f"the memories in {self.folder} are those of another run"
            logs = self._logs()
            if tuple(own) not in logs:
                last = "" if about["run"] == str(self.owner) else f" ({about['run']} had them last)"
                return f"the memories in {self.folder} cannot go back so far{last}"
            for later in logs[logs.index((own[0], own[1])) :]:
                for _ in records(self._log(*later), self.layout.stride):
                    pass
        except CheckpointError as error:
            return str(error)
        except OSError as error:
            return f"the memories in {self.folder} cannot be read: {error.strerror}"
        return None

    def _differs(self, about: dict[str, Any]) -> str | None:
        """How a store is another one than this; both are named."""
        if about["format"] != FORMAT:
            return f"{self.folder} has format {about['format']}; this moml reads {FORMAT}"
        if about["tasks"] != self.n:
            return f"{self.folder} holds {about['tasks']} tasks; here there are {self.n}"
        if about["row"] != self.layout.names:
            was, here = ", ".join(about["row"]), ", ".join(self.layout.names)
            return f"{self.folder} holds rows of {was}; here they are {here}"
        size, wanted = (self.folder / "rows").stat().st_size, self.n * self.layout.stride
        if size != wanted:
            return f"{self.folder / 'rows'} has {size} bytes instead of {wanted}"
        return None

    def back_to(self, step: int) -> None:
        """Undo all that was written since a checkpoint, for which `flaw` found nothing wrong."""
        with _told(self.folder, "restore"):
            about = self._held()
            self._id = about["id"]
            if about["run"] != str(self.owner):
                self._take_over(about["run"])
            self._file = RowsFile(self.folder / "rows", self.layout.stride)
            own, *later = [each for each in self._logs() if each[0] >= step]
            for each in (*reversed(later), own):
                for ids, rows in records(self._log(*each), self.layout.stride):
                    order = np.argsort(ids)
                    self._file.write(ids[order], rows[order])
            self._file.sync()  # before what it was made from goes
            self._drop(reversed(later))
        self._begin_log(*own)  # emptied, never missing: the checkpoint needs it by its name

    def _take_over(self, run: str) -> None:
        """The rows are those of a run that has another name now, or was copied."""
        if not self._inside:
            words = "the memories in %s were those of %s; now %s goes on with them"
            log.warning(words, self.folder, run, self.owner)
        self._tell()

    def saving(self, step: int, kept: Sequence[int] = ()) -> dict[str, Any]:
        """The rows are those of a checkpoint that is about to be written: the notes for it.

        From now on it is to this one that the rows can go back, and to those that are `kept`.
        """
        token = secrets.token_hex(4)
        with _told(self.folder, "write"):
            self.file.sync()
        self._begin_log(step, token)
        with _told(self.folder, "write"):
            self._drop([each for each in self._logs() if kept and each[0] < min(*kept, step)])
        return {"rows": [self._id, step, token]}

    def _drop(self, logs: Iterable[tuple[int, str]]) -> None:
        """Remove logs from one end, each for good before the next: a gap would not be seen."""
        for each in logs:
            self._log(*each).unlink()
            sync_folder(self.folder)

    def _begin_log(self, step: int, token: str) -> None:
        with _told(self.folder, "write"):
            if self._undo is not None:
                self._undo.close()
                self._undo = None
            self._undo = Undo(self._log(step, token))
            sync_folder(self.folder)
        self._logged = np.zeros(self.n, bool)

    @property
    def file(self) -> RowsFile:
        """The rows, where the store is open."""
        if self._file is None:
            raise ValueError("the store is not open")
        return self._file

    def read(self, ids: np.ndarray) -> np.ndarray:
        """The sealed rows of some tasks, ids ascending."""
        with _told(self.folder, "read"):
            return self.file.read(ids)

    def write(self, ids: np.ndarray, new: np.ndarray, old: np.ndarray) -> None:
        """Put sealed rows in place of the old ones, which can be brought back."""
        with _told(self.folder, "write"):
            first = ~self._logged[ids]
            if self._undo is not None and first.any():
                self._undo.add(ids[first], old[first])
                self._logged[ids] = True
            self.file.write(ids, new)

    def forget(self, ids: Sequence[int]) -> None:
        """Rows of some tasks back to zeros, in the file and in every log; may be done again."""
        try:
            if problem := self._differs(self._held()):
                raise CheckpointError(problem)
            with _told(self.folder, "write"):
                self._forget(np.unique(np.asarray(ids, np.int64)))
        finally:
            self.close()

    def _forget(self, which: np.ndarray) -> None:
        for partial in self.folder.glob(".undo-*"):  # of a process that was killed
            partial.unlink()
        for path in (self._log(*each) for each in self._logs()):
            partial = path.with_name(f".{path.name}.partial")
            with open(partial, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                for some, rows in records(path, self.layout.stride):
                    rows[np.isin(some, which)] = 0
                    file.write(record_of(some, rows))
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        self._file = RowsFile(self.folder / "rows", self.layout.stride)
        self._file.write(which, np.zeros((len(which), self.layout.stride), np.uint8))
        self._file.sync()
        sync_folder(self.folder)

    def close(self) -> None:
        """Close the files, and let go of the lock."""
        for part in (self._file, self._undo):
            if part is not None:
                part.close()
        if self._lock is not None:
            self._lock.__exit__()
        self._file = self._undo = self._lock = None


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        room = f"{needed / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free"
        raise ConfigError(f"no space for the memories in {folder}: {room}")


@contextmanager
def _told(folder: Path, what: str) -> Iterator[None]:
    """Say what the system refused to do with the memories, in one line."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CheckpointError(f"cannot {what} the memories in {folder}: {reason}") from error
