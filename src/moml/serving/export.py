"""A run as a folder that serves without jax and without moml: arrays, a card, one numpy file.

card.json             what it is: format, columns, target, settings, scores
params.safetensors    the networks, and of a table the residuals for intervals
tasks.json, tasks.safetensors    of a table: known tasks and what is personal to them
moml_serve.py         reads all this, adapts and predicts
manifest.json         size and SHA-256 of each
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moml.algorithms.tabular.members import STEPS, PersonalParams
from moml.errors import ConfigError
from moml.serving.export_network import network_card
from moml.storage.arrays import named_leaves, write_arrays, writing
from moml.storage.files import write_text
from moml.storage.folder import versions
from moml.tabular.model import TableModel
from moml.tabular.predict import BLOCK
from moml.tabular.read import about_of, load_table_run
from moml.tabular.store import TableRun, building, free_place

FORMAT = 1  # of an export; moml_serve.py reads it
PREDICTOR = Path(__file__).with_name("moml_serve.py")  # copied, never imported
HOW = "python moml_serve.py predict --data rows.csv --out predicted.csv; or in Python, see the file"


def export(run: str | os.PathLike[str], out: str | os.PathLike[str], *, tasks: bool = True) -> Path:
    """Write the export of a table's run, or of one by `moml train CONFIG`, to a new folder.

    `tasks`: with what is personal to the tasks that a table's run knows.
    """
    run, out = Path(run), free_place(out)
    if (run / "card.json").exists():
        raise ConfigError(f"{run} is an export already; give the run that it was made from")
    table = (run / "table.json").exists()
    if table and (own := about_of(run)["model"]) is not None:
        raise ConfigError(
            f"{run} has the network {own}; only moml's own networks can be exported to numpy"
        )
    found = load_table_run(run) if table else None
    card, arrays = network_card(run) if found is None else table_card(found)
    told = {"format": FORMAT, "made_by": f"moml {versions()['moml']}", **card, "how_to_use": HOW}
    with building(out) as folder:
        write_text(json.dumps(told, indent=1) + "\n", folder / "card.json")
        write_arrays(folder / "params.safetensors", arrays)
        if found is not None and tasks and len(found.known.place):
            _write_tasks(folder, found)
        shutil.copyfile(PREDICTOR, folder / "moml_serve.py")
    return out


def table_card(run: TableRun) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the card says of a table's model, and the arrays."""
    about, target = run.about, run.columns.target
    used = {"personal": run.model} | (
        {"pooled": run.models["pooled"]} if about["cold"] == "pooled" else {}
    )
    arrays: dict[str, Any] = {f"residuals/{k}": r for k, r in run.residuals.items()}
    for name, model in used.items():
        arrays |= named_leaves(model.knots._asdict(), f"{name}/knots")
        for kind, meta in model.metas.items():
            leaves = named_leaves(meta).items()
            arrays |= {
                f"{name}/{kind}/{n.removeprefix('params/')}": np.asarray(a) for n, a in leaves
            }
    unit = f"the unit of {target.name}" if not target.classes else "classes, with probabilities"
    card = {
        "kind": "table", "task": about["task"], "order": about["order"], "target": about["target"],
        "predictions_in": unit, "shots": about["shots"], "cold": about["cold"],
        "columns": run.columns.to_json(),
        "models": {name: _shape(model) for name, model in used.items()},
        "scores": run.evaluation,
    }  # fmt: skip
    return card, arrays


def _shape(model: TableModel) -> dict[str, Any]:
    shape = model.shape
    told = {"classes": shape.classes, "ordered": shape.ordered, "hidden": list(shape.hidden)}
    return {"kinds": [*model.metas], **told, "steps": STEPS}


def _write_tasks(folder: Path, run: TableRun) -> None:
    """The known tasks, a block of them at a time."""
    known = run.known
    n = len(known.place)
    blocks = (known.take(np.arange(i, min(i + BLOCK, n))) for i in range(0, n, BLOCK))
    like = {
        name: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype)
        for name, leaf in personal_arrays(known.take(np.arange(1))).items()
    }
    with writing(folder / "tasks.safetensors", like) as put:
        for i, block in enumerate(blocks):
            for name, leaf in personal_arrays(block).items():
                put(name, i * BLOCK, leaf)
    told = {"ids": [*known.place], "rows": [int(count) for count in known.rows]}
    write_text(json.dumps(told) + "\n", folder / "tasks.json")


def personal_arrays(own: PersonalParams) -> dict[str, Any]:
    """What is personal to tasks by the names of an export: summary, head/weight, ..."""
    heads = {
        f"{kind}/{name.rpartition('/')[2]}": leaf
        for kind, tree in own.heads.items()
        for name, leaf in named_leaves(tree).items()
    }
    return {"summary": own.summary, **heads}
