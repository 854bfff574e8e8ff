"""Folders of table runs: written as a whole and sealed, checked before they are read.

table.json             columns, names, settings, candidates
model.safetensors      all members, and the pooled model they are compared with
residuals.safetensors  residuals of held-out tasks, for intervals
evaluation.json        the scores
tasks.json, personal.safetensors   ids and personal parameters of all tasks; or, of `moml adapt`,
index.json, tasks/000001.safetensors, ...   one file per task
manifest.json          size and SHA-256 of each file
"""

import json
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int, PyTree

from moml.algorithms.tabular.members import PersonalParams, parts
from moml.algorithms.tabular.simple import simple_start
from moml.atomic import read_plain
from moml.errors import CheckpointError, ConfigError, MomlError
from moml.storage.arrays import filled, named_leaves, read_arrays, write_arrays, writing
from moml.storage.files import writable_folder, write_text, writing_to
from moml.storage.manifest import seal, sync_folder, verify
from moml.tabular.model import TableModel
from moml.types import Record

FORMAT = 5  # of table.json and the arrays beside it
TYPES: Record = dict.fromkeys(("task", "target", "cold"), str) | {"shots": int, "seed": int}
TYPES |= dict.fromkeys(("order", "weight", "model"), str | None)
BLOCK = 4096  # tasks whose personal parameters are in memory at a time
AT_ONCE = 1 << 22  # numbers that are checked at a time


class TaskStore(NamedTuple):
    """The tasks that a run knows; `take(places)` reads the personal parameters of some."""

    places: dict[str, int]  # of each id
    rows: Int[np.ndarray, " tasks"]  # number of rows that each was adapted on
    take: Callable[[np.ndarray], PersonalParams]

    def blocks(self) -> "Iterator[Block]":
        """All tasks, `BLOCK` of them at a time."""
        places = np.arange(len(self.places))
        some = (places[i : i + BLOCK] for i in range(0, len(places), BLOCK))
        return ((self.take(at), self.rows[at]) for at in some)

    def merge(self, new: "TaskStore") -> "TaskStore":
        """The tasks of both; a task of both as it is in the new one."""
        old = [id_ for id_ in self.places if id_ not in new.places]
        both = [(store, ids) for store, ids in ((self, old), (new, [*new.places])) if ids]
        some = [(store, np.array([store.places[id_] for id_ in ids])) for store, ids in both]
        blocks = ((store.take(at), store.rows[at]) for store, at in some)
        return in_memory([id_ for _, ids in both for id_ in ids], blocks)


Block = tuple[PersonalParams, np.ndarray]  # of some tasks, and the number of rows of each


def in_memory(ids: Sequence[str], blocks: Iterable[Block]) -> TaskStore:
    """Tasks with all their personal parameters in memory, or mapped from a file."""
    personal, rows = jax.tree.map(lambda *leaves: _joined(leaves), *blocks)
    return TaskStore(_index(ids), rows.astype(int), partial(_take, personal))


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


def write_tasks(folder: Path, ids: Sequence[str], blocks: Iterator[Block]) -> None:
    """Write tasks.json, and personal.safetensors with the parameters of all tasks."""
    rows: list[int] = []

    def arrays() -> Iterator[Mapping[str, np.ndarray]]:
        for personal, counts in blocks:
            rows.extend(counts.tolist())
            yield named_leaves(personal)

    write_blocks(folder / "personal.safetensors", len(ids), arrays())
    write_ids(folder, ids, rows)


def write_ids(folder: Path, ids: Sequence[str], rows: Sequence[int]) -> None:
    """Write tasks.json."""
    content = {"ids": list(ids), "rows": list(rows)}
    write_text(json.dumps(content) + "\n", folder / "tasks.json")


def write_each_task(folder: Path, ids: Sequence[str], blocks: Iterator[Block]) -> None:
    """Write index.json, and the parameters of every task to a file of its own."""
    (folder / "tasks").mkdir(0o700)
    index: dict[str, Record] = {}
    for personal, rows in blocks:
        leaves = named_leaves(personal)
        for i, count in enumerate(rows.tolist()):
            file = f"tasks/{len(index) + 1:06d}.safetensors"
            write_arrays(folder / file, {name: leaf[i] for name, leaf in leaves.items()})
            index[ids[len(index)]] = {"file": file, "rows": count}
    write_text(json.dumps(index, indent=1) + "\n", folder / "index.json")


def read_tasks(folder: Path, model: TableModel) -> TaskStore:
    """The tasks of a folder; each array is read when it is used."""
    heads = {}
    for kind, meta in model.metas.items():
        one = jax.tree.map(lambda leaf: leaf[0], meta)
        start = parts(kind, model.shape, model.knots).adapt.start
        heads[kind] = jax.eval_shape(start, one).params
    whole = lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
    effects = {k: jax.tree.map(whole, simple_start(one)) for k, one in model.simple.items()}
    like = PersonalParams(0, heads | effects)

    def load(file: Path, leading: int) -> PersonalParams:
        found: PersonalParams = filled(like, read_finite(file))
        for some, axes in ((heads, leading), (effects, leading - 1)):  # nets are [members, ...]
            with_shapes({kind: found.heads[kind] for kind in some}, some, axes)
        return found

    if (folder / "index.json").exists():
        index = read_json(folder / "index.json")
        files = [folder / "tasks" / Path(task["file"]).name for task in index.values()]

        def take(places: np.ndarray) -> PersonalParams:
            with refused(folder):
                found = [load(files[i], 1) for i in places]
                return jax.tree.map(lambda *leaves: np.stack(leaves), *found)

        counts = [task["rows"] for task in index.values()]
        return TaskStore(_index(index), _checked(folder, [*index], counts), take)
    content, found = read_json(folder / "tasks.json"), load(folder / "personal.safetensors", 2)
    sizes = {len(leaf) for leaf in jax.tree.leaves(found)}
    if {len(content["ids"]), len(content["rows"])} != sizes:
        raise CheckpointError(f"{folder}: tasks.json does not match personal.safetensors")
    return in_memory(content["ids"], [(found, _checked(folder, content["ids"], content["rows"]))])


def _checked(folder: Path, ids: Sequence[object], rows: Sequence[object]) -> np.ndarray:
    """The numbers of rows, if all are counts, and the ids are distinct names."""
    for id_, times in Counter(ids).items():
        if times > 1 or not isinstance(id_, str):
            raise CheckpointError(f"{folder}: ids of tasks must be distinct texts; got {id_!r}")
    for id_, count in zip(ids, rows, strict=True):
        if type(count) is not int or count < 0:
            raise CheckpointError(f"{folder}: rows of {id_!r} must be from 0; got {count!r}")
    return np.array(rows, int)


def read_finite(path: Path) -> dict[str, np.ndarray]:
    """Map the arrays of a file; NaN and infinity are refused."""
    arrays = read_arrays(path)
    for name, array in arrays.items():
        for rows in np.array_split(np.atleast_1d(array), 1 + array.size // AT_ONCE):
            if not np.isfinite(rows).all():
                raise CheckpointError(f"{path}: all numbers of {name} must be finite")
    return arrays


def three_columns(name: str, some: np.ndarray) -> np.ndarray:
    """Residuals, the numbers of their tasks and the spreads of their predictions, checked."""
    if some.ndim != 2 or some.shape[1] != 3 or not len(some) or (some[:, 2] < 0).any():
        raise ValueError(f"the residuals {name} have the shape {some.shape}, or negative spreads")
    return np.asarray(some)


def with_shapes(tree: PyTree, like: PyTree, leading: int) -> PyTree:
    """The same arrays; after `leading` axes they must have the shapes of `like`."""

    def check(leaf: np.ndarray, wanted: jax.ShapeDtypeStruct | int) -> np.ndarray:
        if isinstance(wanted, jax.ShapeDtypeStruct) and leaf.shape[leading:] != wanted.shape:
            raise ValueError(f"an array must have the shape {wanted.shape}; got {leaf.shape}")
        return leaf

    return jax.tree.map(check, tree, like)


def free_place(out: str | os.PathLike[str]) -> Path:
    """A path that does not exist yet, in a folder that can be written to."""
    out = Path(out)
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} exists already; give another name, or remove it")
    writable_folder(out.absolute().parent)
    return out


@contextmanager
def building(out: Path) -> Iterator[Path]:
    """A hidden folder that is sealed and renamed to `out` at the end; removed on an error."""
    place = out.absolute()
    partial = place.with_name(f".{place.name}.{secrets.token_hex(8)}.partial")
    try:
        with writing_to(out):
            partial.mkdir(0o700)
            yield partial
            seal(partial)
            free_place(place)
            os.rename(partial, place)
            sync_folder(place.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def refused(folder: Path) -> Iterator[None]:
    """Turn any error while reading a folder into a CheckpointError of one line."""
    try:
        yield
    except MomlError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise CheckpointError(f"{folder} was not written by moml: {reason}") from error


def _distinct(pairs: list[tuple[str, Any]]) -> Record:
    if len(found := dict(pairs)) < len(pairs):
        [(name, count)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name!r} is given {count} times")
    return found


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(read_plain(path), object_pairs_hook=_distinct)
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def check_seal(folder: Path) -> None:
    """Raise unless every byte of the folder is as its manifest says."""
    if wrong := verify(folder):
        raise CheckpointError(f"{folder} cannot be trusted: {wrong}")


def read_about(folder: Path) -> Record:
    """The table.json of a run; every byte of the folder is checked."""
    if not (folder / "table.json").is_file():
        raise ConfigError(f"{folder} is not the run of a table: it has no table.json")
    check_seal(folder)
    with refused(folder):
        about = read_json(folder / "table.json")
        if about["format"] != FORMAT:
            raise CheckpointError(
                f"{folder} was written by moml {about['versions']['moml']} in format "
                f"{about['format']!r}; this version reads format {FORMAT}"
            )
        good = all(isinstance(about[name], kind) for name, kind in TYPES.items())
        good &= about["shots"] >= 0 and about["seed"] >= 0
        good &= all(isinstance(id_, str) for name in ("trained", "held_out") for id_ in about[name])
        if not good or about["cold"] not in ("personal", "pooled"):
            raise ValueError("table.json has settings of other types, or negative ones")
        return about
