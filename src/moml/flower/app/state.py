"""Memories at a node: each task's row after its last two rounds, in Flower's context and in files.

    STATE/EXPERIMENT/TASK-ROUND-RUN-SHA256.safetensors

The server says after which round a task's row was last counted; that row is the one to go on from.
So a round that is done again, or whose answer was lost, does not move a memory twice. RUN is drawn
when a run begins: another one of the same name has memories of its own.
"""

import hashlib
import logging
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from flwr.app import ArrayRecord, RecordDict
from jaxtyping import PyTree

from moml.atomic import atomic_write
from moml.errors import CheckpointError, ConfigError
from moml.flower.app.records import arrays_of, tree_of
from moml.storage.arrays import arrays_bytes, filled, named_leaves, read_arrays
from moml.storage.files import writable_folder
from moml.storage.manifest import sync_folder

log = logging.getLogger("moml")
SUFFIX = ".safetensors"


class Place(NamedTuple):
    """Where the rows of one task in one run are kept."""

    records: RecordDict  # Flower's Context.state: lost when the node is started again
    folder: Path | None  # files: not lost
    experiment: str
    run: str
    task: int

    def name(self, round_: int) -> str:
        """Of the row after a round."""
        return f"{self.task:06d}-{round_:08d}-{self.run}"

    @property
    def files(self) -> Path | None:
        """The folder of the experiment."""
        return None if self.folder is None else self.folder / self.experiment


def recall(place: Place, round_: int, like: PyTree) -> PyTree:
    """Return the row after a round, None where there is none; CheckpointError if it is damaged."""
    record = place.records.get(f"{place.experiment}/{place.name(round_)}")
    if isinstance(record, ArrayRecord):
        return tree_of(record, like)
    if place.files is not None:
        for path in place.files.glob(place.name(round_) + "-*" + SUFFIX):
            if hashlib.sha256(path.read_bytes()).hexdigest() != path.stem.rsplit("-", 1)[1]:
                raise CheckpointError(f"{path} is damaged; without it the memory begins anew")
            return jax.tree.map(np.array, filled(like, read_arrays(path), "w"))
    log.warning("task %d has no memory of round %d here: it begins anew", place.task, round_)
    return None


def keep(place: Place, before: int, round_: int, row: PyTree) -> None:
    """Keep the row after a round, and the one it came from; delete those of other rounds."""
    names = {place.name(before), place.name(round_)}
    if place.files is not None:
        folder = writable_folder(place.files, 0o700)
        final = _write(folder, place.name(round_), row)
        for path in folder.glob(f"{place.task:06d}-*"):
            old = path.name.rsplit("-", 1)[0] not in names
            if old or (path.name.startswith(place.name(round_)) and path != final):
                path.unlink(missing_ok=True)
        sync_folder(folder)
    mine = f"{place.experiment}/{place.task:06d}-"
    for name in [name for name in place.records if name.startswith(mine)]:
        if name.removeprefix(f"{place.experiment}/") not in names:
            del place.records[name]
    place.records[f"{place.experiment}/{place.name(round_)}"] = arrays_of(row)


def _write(folder: Path, name: str, row: PyTree) -> Path:
    """Write a file atomically, with its digest in its name."""
    leaves = {key: np.asarray(leaf) for key, leaf in named_leaves(row, "w").items()}
    content = arrays_bytes(leaves)
    final = folder / f"{name}-{hashlib.sha256(content).hexdigest()}{SUFFIX}"
    try:
        with atomic_write(final) as file:
            file.write(content)
    except OSError as error:
        raise ConfigError(f"cannot write a memory in {folder}: {error.strerror}") from error
    return final
