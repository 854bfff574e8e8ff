"""A table's run, read: every byte checked, every array of the shape that its model has."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moml.algorithms.tabular.members import PersonalParams, Shape, parts
from moml.config.user_function import load_build
from moml.data.table.columns import Columns
from moml.errors import CheckpointError, ConfigError, MomlError
from moml.models.table import Knots
from moml.models.user import Build
from moml.storage.arrays import filled, read_arrays
from moml.storage.manifest import verify
from moml.tabular.model import TableModel
from moml.tabular.rivals import Rivals
from moml.tabular.store import FORMAT, Known, TableRun, kept
from moml.types import Hyper


def about_of(folder: Path) -> dict[str, Any]:
    """The table.json of a run, whose every byte is checked."""
    if not (folder / "table.json").is_file():
        raise ConfigError(f"{folder} is not the run of a table: it has no table.json")
    wrong = verify(folder)
    if wrong:
        raise CheckpointError(f"{folder} cannot be trusted: {wrong}")
    about = _json(folder / "table.json")
    with sound(folder):
        if about["format"] != FORMAT:
            made = f"format {about['format']!r} (moml {about['versions']['moml']})"
            raise CheckpointError(f"{folder} is of {made}; this version of moml reads {FORMAT}")
        return _typed(about)


@contextmanager
def sound(folder: Path) -> Iterator[None]:
    """Whatever is wrong with what is read here is the folder's: it is refused in a line."""
    try:
        yield
    except MomlError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise CheckpointError(f"{folder} is not as moml writes it: {reason}") from error


def load_table_run(folder: str | os.PathLike[str], model: str | None = None) -> TableRun:
    """A trained table, or the personal models that `moml adapt` wrote; every byte is checked.

    A run with a network of your own is given the name of its function again: nothing is imported
    because a file says so.
    """
    folder = Path(folder)
    about = about_of(folder)
    if (about["model"] is None) != (model is None):
        told = "our own network: leave the model out"
        told = told if about["model"] is None else f"the network {about['model']}: give --model"
        raise ConfigError(f"{folder} has {told}")
    build = None if model is None else load_build(model)
    with sound(folder):
        arrays = read_arrays(folder / "model.safetensors")
        models = {name: _model(name, about[name], arrays, build) for name in ("personal", "pooled")}
        residuals = read_arrays(folder / "residuals.safetensors")
        return TableRun(
            folder,
            about,
            Columns.from_json(about["columns"]),
            models,
            Rivals(**about["rivals"]),
            _known(folder, models["personal"]),
            {int(k): np.asarray(r) for k, r in residuals.items()},
            _json(folder / "evaluation.json"),
        )


def _typed(about: dict[str, Any]) -> dict[str, Any]:
    """The same, if its settings are of their types."""
    words, maybe = ("task", "target", "cold"), ("order", "weight", "model")
    good = all(isinstance(about[name], str) for name in words)
    good &= all(about[name] is None or isinstance(about[name], str) for name in maybe)
    good &= all(isinstance(id_, str) for name in ("trained", "held_out") for id_ in about[name])
    good &= all(type(about[name]) is int for name in ("shots", "seed"))
    if not good or about["cold"] not in ("personal", "pooled"):
        raise ValueError("table.json has settings of other types")
    return about


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _model(
    name: str, told: dict[str, Any], arrays: Mapping[str, np.ndarray], build: Build | None
) -> TableModel:
    given = told["shape"] | {"hidden": tuple(told["shape"]["hidden"]), "build": build}
    shape = Shape(**given)
    knots = Knots(**filled(dict.fromkeys(Knots._fields, 0), arrays, f"{name}/knots"))
    metas = {}
    for kind in told["kinds"]:
        made = parts(kind, shape, knots)
        first = lambda key, made=made: made.adapt.init(made.init(key), Hyper(eta=0.0, alpha=0.1))
        like = jax.eval_shape(first, jax.random.key(0))
        metas[kind] = _fitting(filled(like, arrays, f"{name}/members/{kind}"), like, 1)
    return TableModel(shape, knots, metas, told["shots"], (), tuple(told["scores"]))


def _fitting(tree: Any, like: Any, leading: int) -> Any:
    """The same arrays, if they have the shapes of `like` after their leading axes."""

    def check(leaf: np.ndarray, wanted: Any) -> np.ndarray:
        if isinstance(wanted, jax.ShapeDtypeStruct) and leaf.shape[leading:] != wanted.shape:
            raise ValueError(f"an array of shape {leaf.shape} where {wanted.shape} is expected")
        return leaf

    return jax.tree.map(check, tree, like)


def _known(folder: Path, model: TableModel) -> Known:
    each = {}
    for kind, meta in model.metas.items():
        one = jax.tree.map(lambda leaf: leaf[0], meta)
        each[kind] = jax.eval_shape(parts(kind, model.shape, model.knots).adapt.start, one).own
    like = {"summary": 0, "heads": each}
    if (folder / "index.json").exists():
        index = _json(folder / "index.json")
        files = [folder / "tasks" / Path(told["file"]).name for told in index.values()]

        def read(which: np.ndarray) -> PersonalParams:
            load = lambda file: _fitting(filled(like, read_arrays(file)), like, 1)
            with sound(folder):
                found = [load(files[i]) for i in which]
                return PersonalParams(**jax.tree.map(lambda *leaves: np.stack(leaves), *found))

        rows = np.array([told["rows"] for told in index.values()], int)
        return Known({id_: i for i, id_ in enumerate(index)}, rows, read)
    told = _json(folder / "tasks.json")
    found = _fitting(filled(like, read_arrays(folder / "personal.safetensors")), like, 2)
    if not {len(told["ids"]), len(told["rows"])} == {len(leaf) for leaf in jax.tree.leaves(found)}:
        raise ValueError("tasks.json has other tasks than personal.safetensors")
    return kept(told["ids"], told["rows"], PersonalParams(**found))
