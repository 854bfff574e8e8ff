"""What a table's training leaves on disk: plain arrays and JSON, sealed; no row of the table.

table.json            columns, names, settings, what was tried
model.safetensors     all members, and the pooled model they are compared with
residuals.safetensors what held-out tasks were off by, for intervals
evaluation.json       the scores
tasks.json, personal.safetensors    every task and what is personal to it, or, of `moml adapt`,
index.json, tasks/000001.safetensors, ...   one file a task
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from moml.algorithms.tabular.members import PersonalParams
from moml.data.table.columns import Columns
from moml.errors import ConfigError
from moml.storage.arrays import named_leaves, write_arrays, writing
from moml.storage.files import writable_folder, write_text
from moml.storage.folder import versions
from moml.storage.manifest import seal, sync_folder
from moml.tabular.model import TableModel
from moml.tabular.rivals import Rivals

FORMAT = 1
BLOCK = 4096  # tasks whose personal parameters are in memory at a time


class Known(NamedTuple):
    """Tasks whose personal parameters are kept; `take` reads those of some of them."""

    place: dict[str, int]  # of each id
    rows: np.ndarray  # that each was adapted on
    take: Callable[[np.ndarray], PersonalParams]


class TableRun(NamedTuple):
    """A trained table, or personal models made from one."""

    folder: Path | None  # None: in memory alone
    about: dict[str, Any]  # table.json
    columns: Columns
    models: dict[str, TableModel]  # the personal one, and the pooled
    rivals: Rivals
    known: Known
    residuals: dict[int, np.ndarray]
    evaluation: list[dict[str, Any]]

    @property
    def model(self) -> TableModel:
        """The one that adapts."""
        return self.models["personal"]


def kept(ids: Sequence[str], rows: Any, own: PersonalParams) -> Known:
    """Tasks by what is personal to all of them, in memory or mapped from a file."""
    place = {id_: i for i, id_ in enumerate(ids)}
    return Known(place, np.asarray(rows, int), partial(_some, own))


def joined(blocks: Iterator[PersonalParams]) -> PersonalParams:
    """What is personal to all tasks, from some of them at a time."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)


def together(old: Known, new: Known) -> Known:
    """The tasks of both; those that are in both as they are in the new one."""
    stay = [id_ for id_ in old.place if id_ not in new.place]
    each = [(old, stay), (new, list(new.place))]
    some = [(of, ids, np.array([of.place[id_] for id_ in ids])) for of, ids in each if ids]
    return kept(
        [id_ for _, ids, _ in some for id_ in ids],
        np.concatenate([of.rows[at] for of, _, at in some]),
        joined(of.take(at) for of, _, at in some),
    )


def _some(own: PersonalParams, which: np.ndarray) -> PersonalParams:
    return jax.tree.map(lambda leaf: leaf[which], own)


def save_table_run(run: TableRun, out: str | os.PathLike[str]) -> None:
    """A run that is in memory, in a folder of its own, as the commands leave and take it."""
    known, ids = run.known, sorted(run.known.place, key=run.known.place.__getitem__)
    every = np.arange(len(ids))
    with building(free_place(out)) as folder:
        write_model(
            folder, run.about, run.columns, run.models, run.rivals, run.residuals, run.evaluation
        )
        blocks = (known.take(every[i : i + BLOCK]) for i in range(0, len(ids), BLOCK))
        write_tasks(folder, ids, known.rows.tolist(), blocks)


def free_place(out: str | os.PathLike[str]) -> Path:
    """A folder that is not there yet, in one that can be written to."""
    out = Path(out)
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} exists already; give another name, or remove it")
    writable_folder(out.absolute().parent)
    return out


@contextmanager
def building(out: Path) -> Iterator[Path]:
    """A folder that gets its name when it is whole and sealed; on an error it is gone."""
    place = out.absolute()
    partial = place.with_name(f".{place.name}.{secrets.token_hex(8)}.partial")
    try:
        partial.mkdir()
        yield partial
        seal(partial)
        free_place(place)
        os.rename(partial, place)
        sync_folder(place.parent)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_model(
    folder: Path,
    about: Mapping[str, Any],
    columns: Columns,
    models: Mapping[str, TableModel],
    rivals: Rivals,
    residuals: Mapping[int, np.ndarray],
    evaluation: Sequence[dict[str, Any]],
) -> None:
    """All but the tasks; `models` are the personal one and the pooled."""
    arrays: dict[str, Any] = {}
    told: dict[str, Any] = {"format": FORMAT, "versions": versions(), **about}
    told["columns"] = columns.to_json()
    for name, model in models.items():
        arrays |= named_leaves(model.knots._asdict(), f"{name}/knots")
        arrays |= named_leaves(model.metas, f"{name}/members")
        shape = model.shape._replace(build=None)._asdict()
        told[name] = {"shape": shape, "kinds": [*model.metas], "shots": model.shots}
        told[name] |= {"scores": list(model.scores)}
    told["rivals"] = rivals._asdict()
    write_arrays(folder / "model.safetensors", {name: np.asarray(a) for name, a in arrays.items()})
    write_arrays(folder / "residuals.safetensors", {str(k): r for k, r in residuals.items()})
    write_text(json.dumps(told, indent=1) + "\n", folder / "table.json")
    write_text(json.dumps(list(evaluation), indent=1) + "\n", folder / "evaluation.json")


def write_tasks(
    folder: Path, ids: Sequence[str], rows: Sequence[int], blocks: Iterator[PersonalParams]
) -> None:
    """The personal parameters of all tasks in one file, as they come."""
    first = next(blocks)
    n = len(ids)
    whole = lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype)
    with writing(
        folder / "personal.safetensors", named_leaves(_tree(jax.tree.map(whole, first)))
    ) as put:
        done = 0
        for block in _chained(first, blocks):
            for name, leaf in named_leaves(_tree(block)).items():
                put(name, done, leaf)
            done += len(block.summary)
    told = {"ids": list(ids), "rows": [int(count) for count in rows]}
    write_text(json.dumps(told) + "\n", folder / "tasks.json")


def write_each_task(
    folder: Path, ids: Sequence[str], rows: Sequence[int], blocks: Iterator[PersonalParams]
) -> None:
    """The personal parameters of every task in a file of its own, and an index of them."""
    (folder / "tasks").mkdir()
    index: dict[str, dict[str, Any]] = {}
    for block in blocks:
        leaves = named_leaves(_tree(block))
        for i in range(len(block.summary)):
            file = f"tasks/{len(index) + 1:06d}.safetensors"
            write_arrays(folder / file, {name: leaf[i] for name, leaf in leaves.items()})
            index[ids[len(index)]] = {"file": file, "rows": int(rows[len(index)])}
    write_text(json.dumps(index, indent=1) + "\n", folder / "index.json")


def _chained(first: PersonalParams, rest: Iterator[PersonalParams]) -> Iterator[PersonalParams]:
    yield first
    yield from rest


def _tree(own: PersonalParams) -> dict[str, Any]:
    return {"summary": own.summary, "heads": own.heads}
