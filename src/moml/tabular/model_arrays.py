"""Models of a table as named arrays and JSON, and back."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from moml.algorithms.tabular.members import Shape, meta_like
from moml.algorithms.tabular.simple import read_simple
from moml.algorithms.tabular.stack import Stack
from moml.models.table import Knots
from moml.models.user import Build
from moml.storage.arrays import filled, named_leaves, write_arrays
from moml.storage.files import write_text
from moml.storage.folder import versions
from moml.tabular.model import TableModel
from moml.tabular.store import FORMAT, with_shapes
from moml.types import Record

Arrays = dict[str, np.ndarray]


def as_arrays(models: Mapping[str, TableModel]) -> tuple[Record, Arrays]:
    """What JSON holds of each model, and the arrays of all of them by name."""
    content: Record = {}
    arrays: Arrays = {}
    for name, model in models.items():
        content[name] = {
            "shape": model.shape._replace(build=None)._asdict(), "kinds": [*model.metas],
            "shots": model.shots, "scores": list(model.scores),
            "simple": {kind: type(one).__name__ for kind, one in model.simple.items()},
        }  # fmt: skip
        arrays |= named_leaves(model.knots._asdict(), f"{name}/knots")
        arrays |= named_leaves(model.metas, f"{name}/members")
        arrays |= named_leaves(model.simple, f"{name}/simple")
        if model.stack is not None:
            arrays |= named_leaves(model.stack._asdict(), f"{name}/stack")
    return content, {name: np.asarray(array) for name, array in arrays.items()}


def write_run(
    folder: Path,
    about: Record,
    models: Mapping[str, TableModel],
    residuals: Mapping[int, np.ndarray],
    evaluation: Sequence[Record],
) -> None:
    """Write all of a run but its tasks."""
    content, arrays = as_arrays(models)
    content = {**about, "format": FORMAT, "versions": versions(), **content}
    write_arrays(folder / "model.safetensors", arrays)
    write_arrays(folder / "residuals.safetensors", {str(k): r for k, r in residuals.items()})
    write_text(json.dumps(content, indent=1) + "\n", folder / "table.json")
    write_text(json.dumps(evaluation, indent=1) + "\n", folder / "evaluation.json")


def read_model(name: str, content: Record, arrays: Arrays, build: Build | None) -> TableModel:
    """The model of this name; raises a ValueError for arrays that are not those of its members."""
    hidden = tuple(content["shape"]["hidden"])
    shape = Shape(**(content["shape"] | {"hidden": hidden, "build": build}))
    knots = Knots(**filled(dict.fromkeys(Knots._fields, 0), arrays, f"{name}/knots"))
    metas = {}
    for kind in content["kinds"]:
        like = meta_like(kind, shape, knots)
        metas[kind] = with_shapes(filled(like, arrays, f"{name}/members/{kind}"), like, 1)
    simple = {
        kind: read_simple(
            made,
            partial(filled, arrays=arrays, prefix=f"{name}/simple/{kind}"),
            shape.features,
            shape.classes,
            knots,
        )
        for kind, made in content["simple"].items()
    }
    stack = None
    if f"{name}/stack/known" in arrays:
        stack = Stack(**filled(dict.fromkeys(Stack._fields, 0), arrays, f"{name}/stack"))
        if stack.weights.shape != (len(stack.known), len(metas) + len(simple)):
            raise ValueError(f"the weights of {name} are not those of its members")
    elif simple:
        raise ValueError(f"the members of {name} have no weights")
    scores = tuple(content["scores"])
    return TableModel(shape, knots, metas, content["shots"], (), scores, simple, stack)
