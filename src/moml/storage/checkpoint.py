"""Checkpoints: a state on disk that is whole, proven so before it is read, or passed over by name.

    checkpoints/0000012000/  state/         what orbax writes: the leaves, by their number
                             rows/          of several processes: see `moml.storage.shares`
                             info.json      format, step, score, names of the leaves, caller's notes
                             manifest.json  see `moml.storage.manifest`

One is written in a hidden folder beside, then renamed; only then do old ones go, by a rename first.
"""

import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moml.errors import CheckpointError, LostProcess, check_count
from moml.runtime.process_group import ALONE, ProcessGroup, nothing
from moml.storage import manifest
from moml.storage.checkpoint_read import (
    FORMAT,
    PLAIN,
    Saved,
    Usable,
    names_of,
    read_checkpoint,
    reason_of,
)
from moml.storage.leaves import save_leaves
from moml.storage.shares import Share, save_shares

PARTIAL, SWAPPED, OLD = ".writing-", ".swapped-", ".old-"
log = logging.getLogger("moml")


class Checkpoints:
    """The checkpoints of one run: the newest `keep`, and the one with the least score.

    Whoever saves holds the run's lock; to load needs none. Use it in a `with`, or `close` it. The
    processes of a group all save and load at the same moments, in a folder that all of them see.
    """

    def __init__(self, folder: Path | str, keep: int = 3, group: ProcessGroup = ALONE):
        self.folder = Path(folder)
        self.keep = check_count("keep", keep)
        self.group = group
        self._bad: set[int] = set()  # passed over by `load`: worth nothing once a new one is there
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._job: Future[None] | None = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.close()
        except CheckpointError as error:
            if kind is None:
                raise
            log.error("%s", error)  # besides the error that is under way

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._job is not None and not self._job.done()

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, good or bad, in order."""
        names = (path.name for path in self.folder.glob("[0-9]*"))
        return sorted(int(name) for name in names if name.isdecimal() and len(name) == 10)

    def good(self) -> list[int]:
        """The same without those that `load` passed over."""
        return [step for step in self.steps() if step not in self._bad]

    def path(self, step: int) -> Path:
        """The folder of a step's checkpoint."""
        return self.folder / f"{step:010d}"

    def save(self, step: int, state: Any, info: dict[str, Any], score: float | None = None) -> None:
        """Copy the state now, write it beside what comes next; an earlier write is waited for.

        `state` has array leaves (typed keys as their data) or `Share`s of a group; `info` is what
        JSON can say, that of the first process. A step that is saved again is replaced. Raises what
        an earlier write raised.
        """
        self.wait()
        for leaf in jax.tree.leaves(state):
            if isinstance(leaf, jax.Array):
                leaf.copy_to_host_async()
        own = lambda leaf: leaf if isinstance(leaf, Share) else np.array(leaf, copy=True)
        copied = jax.tree.map(own, state)
        score = float(score) if score is not None and math.isfinite(score) else None
        several = any(isinstance(leaf, Share) for leaf in jax.tree.leaves(copied))
        about = {"format": FORMAT if several else PLAIN, "step": step, "score": score}
        text = json.dumps(about | {"info": info, "leaves": names_of(copied)}, indent=1) + "\n"
        self._job = self._pool.submit(self._write, step, jax.tree.leaves(copied), text)

    def wait(self) -> None:
        """Return when all is on disk; raises CheckpointError where writing failed."""
        job = self._job
        try:
            if job is not None:
                job.result()
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
        like: Any,
        usable: Usable = lambda info: None,
        *,
        best: bool = False,
        mapped: bool = False,
    ) -> Saved | None:
        """The newest good checkpoint whose leaves are those of `like` (arrays or their shapes).

        With `best`, the good one with the least score. With `mapped`, rows of several processes are
        `Pieces`, which read what is asked for.

        A bad one, or one for which `usable(info)` gives a reason, is passed over with a warning.
        None where there never was one; CheckpointError where there are some and none is good. Of a
        group the first process chooses.
        """
        self.wait()
        if not self.group.leads:
            told = self.group.agree("load", "")
            if told == "none":
                return None
            if not told.isdecimal():
                raise CheckpointError(f"process 0: {told}")
            found = read_checkpoint(
                self.path(int(told)), int(told), like, lambda info: None, proven=True
            )
            return found if mapped else found.whole()
        try:
            newest = self._newest(like, usable, best)
        except CheckpointError as error:
            self.group.agree("load", str(error))
            raise
        self.group.agree("load", "none" if newest is None else str(newest.step))
        return newest if mapped or newest is None else newest.whole()

    def _newest(self, like: Any, usable: Usable, best: bool) -> Saved | None:
        reasons: dict[int, str] = {}
        scores = {step: self._score(step) if best else None for step in self.steps()}
        order = lambda step: (math.inf if (score := scores[step]) is None else score, -step)
        for step in sorted(scores, key=order):
            try:
                saved = read_checkpoint(self.path(step), step, like, usable)
            except CheckpointError as error:
                reasons[step] = str(error)
                log.warning("checkpoint %s is passed over: %s", self.path(step), error)
            else:
                self._bad |= set(reasons)
                if reasons:
                    log.warning("going back to the checkpoint of step %d", step)
                return saved
        if not reasons:
            return None
        each = "; ".join(f"{self.path(step).name}: {reason}" for step, reason in reasons.items())
        raise CheckpointError(f"no checkpoint in {self.folder} can be used: {each}")

    def rewrite(self, like: Any, change: Callable[[Any], Any]) -> list[int]:
        """Every checkpoint with `change(state)` for its state; gives those that were bad: they go.

        Whoever does it holds the run's lock. Killed at any moment, it can be done again.
        """
        self.clear()
        self.load(like)  # raises where none is good
        bad = []
        for step in self.steps():
            try:
                saved = read_checkpoint(self.path(step), step, like, lambda info: None)
            except CheckpointError:
                os.rename(self.path(step), self.folder / f"{OLD}{step:010d}")
                bad.append(step)
                continue
            text = (self.path(step) / "info.json").read_text()
            self._write(step, jax.tree.leaves(change(saved.whole().state)), text)
        self.clear()
        return bad

    def clear(self) -> None:
        """Clear up after a process that was killed; for the holder of the run's lock alone."""
        for swapped in self.folder.glob(SWAPPED + "*"):
            if not (final := self.folder / swapped.name.removeprefix(SWAPPED)).exists():
                os.rename(swapped, final)  # killed while it was being replaced
        for prefix in (PARTIAL, SWAPPED, OLD):
            for path in self.folder.glob(prefix + "*"):
                shutil.rmtree(path)

    def _write(self, step: int, leaves: list[Any], text: str) -> None:
        partial, final = self.folder / f"{PARTIAL}{step:010d}", self.path(step)
        shares = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Share)}
        whole = {i: leaf for i, leaf in enumerate(leaves) if i not in shares}

        def begin() -> None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.clear()
            rows = self.group.processes * sum(leaf.nbytes for leaf in shares.values())
            _check_room(self.folder, rows + sum(leaf.nbytes for leaf in whole.values()))
            partial.mkdir()

        def finish() -> None:
            save_leaves(partial / "state", whole)
            (partial / "info.json").write_text(text)
            manifest.seal(partial)
            if final.exists():
                os.rename(final, self.folder / (SWAPPED + final.name))
            os.rename(partial, final)
            manifest.sync_folder(self.folder)
            self._bad.discard(step)
            self._retire(step)

        try:
            self.group.run_all("save", begin if self.group.leads else nothing)
            self.group.run_all("save", lambda: save_shares(partial / "rows", shares))
            self.group.run_all("save", finish if self.group.leads else nothing)
        except LostProcess:
            raise
        except Exception as error:
            if self.group.leads:
                _remove(partial)
            problem = f"cannot save step {step} in {self.folder}: {reason_of(error)}"
            raise CheckpointError(problem) from error

    def _retire(self, newest: int) -> None:
        """Delete what is neither new nor the best, and what was bad."""
        good = self.good()
        kept = {newest, *good[-self.keep :]}
        scores = [(score, -step) for step in good if (score := self._score(step)) is not None]
        if scores:
            kept.add(-min(scores)[1])
        for step in set(self.steps()) - kept:
            os.rename(self.path(step), self.folder / f"{OLD}{step:010d}")
        self.clear()

    def _score(self, step: int) -> float | None:
        with suppress(OSError, ValueError, LookupError, TypeError):
            return json.loads((self.path(step) / "info.json").read_bytes())["score"]
        return None


def _check_room(folder: Path, needed: int) -> None:
    """Do not begin what cannot end: orbax fails in many words, and with the disk full for all."""
    disk = shutil.disk_usage(folder)
    if disk.total and disk.free < needed:  # some systems tell nothing: then both are 0
        room = f"{needed / 1e6:.1f} MB needed, {disk.free / 1e6:.1f} MB free"
        raise CheckpointError(f"no space left: {room}")


def _remove(folder: Path) -> None:
    """Remove what a failed write left: threads of tensorstore may still be adding to it."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)
        if not folder.exists():
            break
