"""Checkpoints: states on disk that are verified before they are read.

    checkpoints/0000012000/  state.safetensors      the leaves, by their paths
                             part-0003.safetensors  see `moml.storage.shares`
                             info.json              format, step, score, leaves, the caller's notes
                             manifest.json          see `moml.storage.manifest`

A checkpoint is written in a hidden folder beside the others, sealed and renamed; only then are old
ones removed, by a rename first.
"""

import itertools
import json
import logging
import math
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from moml.atomic import read_plain
from moml.errors import CheckpointError, LostProcess, MomlError, check_count, reason
from moml.runtime.process_group import ALONE, ProcessGroup, nothing
from moml.storage.arrays import leaf_paths, leaf_specs, read_arrays, write_arrays
from moml.storage.files import check_space, write_text
from moml.storage.manifest import seal, sync_folder, verify
from moml.storage.shares import Share, read_shared, write_shared
from moml.types import Record, State

FORMAT, STATE = 3, "state.safetensors"
PARTIAL, SWAPPED, OLD = ".writing-", ".swapped-", ".old-"
Usable = Callable[[Record], str | None]  # info -> why a checkpoint cannot be used, or None
log = logging.getLogger("moml")


class Saved(NamedTuple):
    """A checkpoint that was read; the leaves of its state are numpy arrays."""

    step: int
    state: State
    info: Record
    score: float | None


class Checkpoints:
    """The checkpoints of one run: the newest `keep`, and the one with the lowest score.

    Whoever saves must hold the lock of the run; loading needs none. Use it in a `with`, or call
    `close`. All processes of a group save and load at the same time, in a folder that they share.
    """

    def __init__(self, folder: Path | str, keep: int = 3, group: ProcessGroup = ALONE):
        self.folder, self.keep, self.group = Path(folder), check_count("keep", keep), group
        self._bad: set[int] = set()  # skipped by `load`: removed once there is a new one
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._job: Future[None] | None = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except CheckpointError as error:
            if kind is None:
                raise
            log.error("%s", error)  # do not hide the error that is being raised

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._job is not None and not self._job.done()

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, good or bad, in order."""
        return list(stored(self.folder))

    def good(self) -> list[int]:
        """Return the same without those that `load` skipped."""
        return [step for step in self.steps() if step not in self._bad]

    def path(self, step: int) -> Path:
        """Return the folder of the checkpoint of a step."""
        return stored(self.folder).get(step, self.folder / f"{step:010d}")

    def save(self, step: int, state: State, info: Record, score: float | None = None) -> None:
        """Copy the state, then write it in the background; raises the error of an earlier write.

        Leaves are arrays (of typed keys their data) or, in a group of processes, `Share`s; `info`
        is what JSON can represent. A step that was saved before is replaced.
        """
        self.wait()
        jax.copy_to_host_async(state)
        copied = jax.tree.map(lambda x: x if isinstance(x, Share) else np.array(x), state)
        score = float(score) if score is not None and math.isfinite(score) else None
        about = {"format": FORMAT, "step": step, "score": score, "info": info}
        text = json.dumps(about | {"leaves": leaf_specs(copied)}, indent=1) + "\n"
        self._job = self._pool.submit(self._write, step, copied, text)

    def wait(self) -> None:
        """Return when all is on disk; raises CheckpointError if writing failed."""
        try:
            if self._job is not None:
                self._job.result()
        finally:
            if not self.busy:  # a second Ctrl-C may end the waiting, not the write
                self._job = None

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()

    def load(
        self,
        like: PyTree,
        usable: Usable = lambda info: None,
        *,
        best: bool = False,
        mapped: bool = False,
    ) -> Saved | None:
        """Load the newest good checkpoint with the leaves of `like`, or the `best` good one.

        A bad one, or one for which `usable(info)` returns a reason, is skipped with a warning; None
        if there is none at all, CheckpointError if none is good. With `mapped`, rows are read when
        they are accessed. In a group of processes the first one chooses.
        """
        self.wait()
        choose = lambda: self._newest(like, usable, best, mapped) if self.group.leads else None
        found = self.group.run_all("load", choose)
        step = self.group.agree("load", "" if found is None else str(found.step))
        if self.group.leads or not step:
            return found
        return _read(self.path(int(step)), int(step), like, mapped=mapped)

    def _newest(self, like: PyTree, usable: Usable, best: bool, mapped: bool) -> Saved | None:
        reasons: dict[int, str] = {}
        order = lambda step: (self._score(step) if best else 0, -step)
        for step in sorted(self.steps(), key=order):
            try:
                saved = _read(_verified(self.path(step)), step, like, usable, mapped=mapped)
            except CheckpointError as error:
                reasons[step] = str(error)
                log.warning("checkpoint %s is skipped: %s", self.path(step), error)
            else:
                self._bad |= set(reasons)
                if reasons:
                    log.warning("going back to the checkpoint of step %d", step)
                return saved
        if not reasons:
            return None
        each = "; ".join(f"{self.path(step).name}: {why}" for step, why in reasons.items())
        raise CheckpointError(f"no checkpoint in {self.folder} can be used: {each}")

    def rewrite(self, like: PyTree, change: Callable[[State], State]) -> list[int]:
        """Replace the state of every checkpoint by `change(state)`; remove and return the bad ones.

        For the holder of the lock of the run. Killed at any moment, it can be repeated.
        """
        self.clear()
        self.load(like)  # raises if none is good
        self._bad.clear()  # they are removed below, not by the first write
        bad = []
        for step in self.steps():
            try:
                saved = _read(_verified(self.path(step)), step, like, mapped=False)
            except CheckpointError:
                self._put_aside(step)
                bad.append(step)
            else:
                self._write(step, change(saved.state), read_plain(self.path(step) / "info.json"))
        self.clear()
        return bad

    def clear(self) -> None:
        """Remove what a killed process left; for the holder of the lock of the run alone."""
        for swapped in self.folder.glob(SWAPPED + "*"):
            if not (final := self.folder / swapped.name.removeprefix(SWAPPED)).exists():
                os.rename(swapped, final)  # killed while it was being replaced
        for prefix in (PARTIAL, SWAPPED, OLD):
            for path in self.folder.glob(prefix + "*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _write(self, step: int, state: State, text: str) -> None:
        partial, final = self.folder / f"{PARTIAL}{step:010d}", self.folder / f"{step:010d}"
        leaves = dict(zip(leaf_paths(state), jax.tree.leaves(state), strict=True))
        shares = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Share)}
        whole = {name: leaf for name, leaf in leaves.items() if name not in shares}

        def begin() -> None:
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            self.clear()
            rows = self.group.processes * sum(x.rows.nbytes for x in shares.values())
            check_space(self.folder, rows + sum(x.nbytes for x in whole.values()))
            partial.mkdir(0o700)

        def finish() -> None:
            write_arrays(partial / STATE, whole)
            write_text(text, partial / "info.json")
            seal(partial)
            if final.exists():
                os.rename(final, self.folder / (SWAPPED + final.name))
            os.rename(partial, final)
            sync_folder(self.folder)
            self._bad.discard(step)
            self._retire(step)

        try:
            self.group.run_all("save", begin if self.group.leads else nothing)
            self.group.run_all("save", lambda: write_shared(partial, self.group.process, shares))
            self.group.run_all("save", finish if self.group.leads else nothing)
        except LostProcess:
            raise
        except Exception as error:
            if self.group.leads:
                shutil.rmtree(partial, ignore_errors=True)
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            problem = f"cannot save step {step} in {self.folder}: {reason(cause)}"
            raise CheckpointError(problem) from error

    def _retire(self, newest: int) -> None:
        """Delete what is neither new nor the best, and what was bad."""
        good = self.good()
        best = min(good, key=lambda step: (self._score(step), -step))
        for step in set(self.steps()) - {newest, best, *good[-self.keep :]}:
            self._put_aside(step)
        self.clear()

    def _put_aside(self, step: int) -> None:
        os.rename(self.path(step), self.folder / f"{OLD}{step:010d}")

    def _score(self, step: int) -> float:
        """The score of a step, the lower the better; infinite where it has none."""
        with suppress(OSError, ValueError, LookupError, TypeError):
            return float(json.loads(read_plain(self.path(step) / "info.json"))["score"])
        return math.inf


def stored(folder: Path) -> dict[int, Path]:
    """Return the checkpoints by step, in order: of one that was being replaced, the old one."""
    found = [*folder.glob(SWAPPED + "[0-9]" * 10), *folder.glob("[0-9]" * 10)]
    return dict(sorted({int(path.name.removeprefix(SWAPPED)): path for path in found}.items()))


def newest_info(folder: Path, *, whole: bool = True) -> tuple[Path, Record] | None:
    """Return the newest good checkpoint and its notes; not `whole`: whatever its state is."""
    for path in reversed(stored(folder).values()):
        with suppress(OSError, ValueError, LookupError, TypeError):
            if verify(path, None if whole else "info.json") is None:
                return path, dict(json.loads(read_plain(path / "info.json"))["info"])
    return None


def _verified(folder: Path) -> Path:
    """The folder of a checkpoint; a CheckpointError says what is wrong with its files."""
    if problem := verify(folder):
        raise CheckpointError(problem)
    return folder


def _read(
    folder: Path, step: int, like: PyTree, usable: Usable = lambda info: None, *, mapped: bool
) -> Saved:
    """Read a verified checkpoint; a CheckpointError says why it cannot be used."""
    try:
        about = json.loads(read_plain(folder / "info.json"))
        if about["format"] != FORMAT:
            age = "a newer version" if about["format"] > FORMAT else "version 0.1"
            written = f"it has format {about['format']}, written by {age} of moml"
            raise CheckpointError(f"{written}; this version reads format {FORMAT}")
        if about["step"] != step:
            raise CheckpointError(f"it is of step {about['step']}, but its folder was renamed")
        leaves, info, score = list(about["leaves"]), dict(about["info"]), about["score"]
    except MomlError:
        raise
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointError(f"info.json is not as moml writes it: {reason(error)}") from error
    _check_leaves(leaves, like)
    if problem := usable(info):
        raise CheckpointError(problem)
    arrays = read_shared(folder, mapped) | read_arrays(folder / STATE, mapped=mapped)
    state = jax.tree.unflatten(jax.tree.structure(like), map(arrays.get, leaf_paths(like)))
    _check_leaves(leaf_specs(state), like)  # rows of the last processes may be missing
    return Saved(step, state, info, score)


def _check_leaves(found: list[str], like: PyTree) -> None:
    for was, wanted in itertools.zip_longest(found, leaf_specs(like), fillvalue="nothing"):
        if was != wanted:
            raise CheckpointError(f"it holds another state: {was} where {wanted} is expected")
