"""Personal parameters by task: in memory, in one file of a folder, or in one file per task."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Int, PyTree

from moml.algorithms.tabular.members import PersonalParams, parts
from moml.errors import CheckpointError
from moml.storage.arrays import filled, named_leaves, read_arrays, write_arrays, writing
from moml.storage.files import write_text
from moml.tabular.files import read_json, refused
from moml.tabular.model import TableModel

BLOCK = 4096  # tasks whose personal parameters are in memory at a time


class TaskStore(NamedTuple):
    """The tasks that a run knows; `take(places)` reads the personal parameters of some."""

    places: dict[str, int]  # of each id
    rows: Int[np.ndarray, " tasks"]  # number of rows that each was adapted on
    take: Callable[[np.ndarray], PersonalParams]

    def blocks(self) -> Iterator[PersonalParams]:
        """The personal parameters of all tasks, `BLOCK` tasks at a time."""
        n = len(self.places)
        return (self.take(np.arange(i, min(i + BLOCK, n))) for i in range(0, n, BLOCK))

    def merge(self, new: "TaskStore") -> "TaskStore":
        """The tasks of both; a task of both as it is in the new one."""
        old = [id_ for id_ in self.places if id_ not in new.places]
        both = [(store, ids) for store, ids in ((self, old), (new, [*new.places])) if ids]
        some = [(store, np.array([store.places[id_] for id_ in ids])) for store, ids in both]
        return in_memory(
            [id_ for _, ids in both for id_ in ids],
            np.concatenate([store.rows[at] for store, at in some]),
            (store.take(at) for store, at in some),
        )


def in_memory(
    ids: Sequence[str], rows: Sequence[int] | np.ndarray, blocks: Iterable[PersonalParams]
) -> TaskStore:
    """Tasks with all their personal parameters in memory, or mapped from a file."""
    personal = jax.tree.map(lambda *leaves: _joined(leaves), *blocks)
    return TaskStore(_index(ids), np.asarray(rows, int), partial(_take, personal))


def _joined(leaves: Sequence[np.ndarray]) -> np.ndarray:
    return leaves[0] if len(leaves) == 1 else np.concatenate(leaves)


def _index(ids: Iterable[str]) -> dict[str, int]:
    return {id_: i for i, id_ in enumerate(ids)}


def _take(personal: PersonalParams, places: np.ndarray) -> PersonalParams:
    return jax.tree.map(lambda leaf: leaf[places], personal)


def write_blocks(path: Path, n: int, blocks: Iterator[Mapping[str, np.ndarray]]) -> None:
    """Write arrays of n rows to a file, a block of rows at a time; there is one block or more."""
    first = next(blocks)
    whole = lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype)
    with writing(path, {name: whole(leaf) for name, leaf in first.items()}) as put:
        at = 0
        for block in chain([first], blocks):
            for name, leaf in block.items():
                put(name, at, leaf)
            at += len(leaf)


def write_tasks(
    folder: Path, ids: Sequence[str], rows: Sequence[int], blocks: Iterator[PersonalParams]
) -> None:
    """Write tasks.json, and personal.safetensors with the parameters of all tasks."""
    write_blocks(folder / "personal.safetensors", len(ids), map(named_leaves, blocks))
    write_ids(folder, ids, rows)


def write_ids(folder: Path, ids: Sequence[str], rows: Sequence[int]) -> None:
    """Write tasks.json."""
    content = {"ids": list(ids), "rows": [int(count) for count in rows]}
    write_text(json.dumps(content) + "\n", folder / "tasks.json")


def write_each_task(
    folder: Path, ids: Sequence[str], rows: Sequence[int], blocks: Iterator[PersonalParams]
) -> None:
    """Write index.json, and the parameters of every task to a file of its own."""
    (folder / "tasks").mkdir()
    index = {}
    every = ((named_leaves(block), i) for block in blocks for i in range(len(block.summary)))
    for number, (id_, count, (leaves, i)) in enumerate(zip(ids, rows, every, strict=True), 1):
        file = f"tasks/{number:06d}.safetensors"
        write_arrays(folder / file, {name: leaf[i] for name, leaf in leaves.items()})
        index[id_] = {"file": file, "rows": int(count)}
    write_text(json.dumps(index, indent=1) + "\n", folder / "index.json")


def read_tasks(folder: Path, model: TableModel) -> TaskStore:
    """The tasks of a folder; each array is read when it is used."""
    heads = {}
    for kind, meta in model.metas.items():
        one = jax.tree.map(lambda leaf: leaf[0], meta)
        start = parts(kind, model.shape, model.knots).adapt.start
        heads[kind] = jax.eval_shape(start, one).params
    like = PersonalParams(0, heads)
    load = lambda file, leading: with_shapes(filled(like, read_arrays(file)), like, leading)
    if (folder / "index.json").exists():
        index = read_json(folder / "index.json")
        files = [folder / "tasks" / Path(task["file"]).name for task in index.values()]

        def take(places: np.ndarray) -> PersonalParams:
            with refused(folder):
                found = [load(files[i], 1) for i in places]
                return jax.tree.map(lambda *leaves: np.stack(leaves), *found)

        return TaskStore(_index(index), np.array([t["rows"] for t in index.values()], int), take)
    content, found = read_json(folder / "tasks.json"), load(folder / "personal.safetensors", 2)
    sizes = {len(leaf) for leaf in jax.tree.leaves(found)}
    if {len(content["ids"]), len(content["rows"])} != sizes:
        raise CheckpointError(f"{folder}: tasks.json does not match personal.safetensors")
    return in_memory(content["ids"], content["rows"], [found])


def with_shapes(tree: PyTree, like: PyTree, leading: int) -> PyTree:
    """The same arrays; after `leading` axes they must have the shapes of `like`."""

    def check(leaf: np.ndarray, wanted: jax.ShapeDtypeStruct | int) -> np.ndarray:
        if isinstance(wanted, jax.ShapeDtypeStruct) and leaf.shape[leading:] != wanted.shape:
            raise ValueError(f"an array must have the shape {wanted.shape}; got {leaf.shape}")
        return leaf

    return jax.tree.map(check, tree, like)
