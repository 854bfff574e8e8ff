"""Export a run to a folder that serves without jax and without moml.

card.json           format, columns, target, settings, scores
params.safetensors  the networks, and of a table the residuals for intervals
tasks.json, tasks.safetensors   of a table: the known tasks and their personal parameters
moml_serve.py       the stand-alone program that reads these, adapts and predicts
model.onnx          with format "onnx": the network as a graph
manifest.json       size and SHA-256 of each
"""

import json
import os
from pathlib import Path

import numpy as np

from moml.algorithms.tabular.members import STEPS, PersonalParams
from moml.errors import ConfigError
from moml.serving.export_network import network_card
from moml.serving.export_onnx import graphs, onnx
from moml.storage.arrays import named_leaves, write_arrays
from moml.storage.files import write_bytes, write_text
from moml.storage.folder import versions
from moml.tabular.run import TableRun, load_table_run
from moml.tabular.store import building, free_place, read_about, write_blocks, write_ids
from moml.types import Record

FORMAT = 4  # of an export; the FORMAT of moml_serve.py
FORMATS = ("numpy", "onnx")
PREDICTOR = Path(__file__).with_name("moml_serve.py")  # copied, never imported
HOW = "python moml_serve.py predict --data rows.csv --out predicted.csv; or in Python, see the file"


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tasks: bool = True,
    client: int | None = None,
    format: str = "numpy",
) -> Path:
    """Write the export of a table's run, or of a run by `moml train CONFIG`, to a new folder.

    `tasks`: include the personal parameters of the tasks that a table's run knows. `client`: of a
    federated run, the model that this client keeps instead of the server's. `format`: "numpy", or
    "onnx" for the same folder with the network as a graph beside, see `export_onnx`.
    """
    if format not in FORMATS:
        raise ConfigError(f"format must be one of {', '.join(FORMATS)}; got {format!r}")
    if format == "onnx":
        onnx()  # raises before anything is read
    run, out = Path(run), free_place(out)
    if (run / "card.json").exists():
        raise ConfigError(f"{run} is an export already; give the run that it was made from")
    table = None
    if (run / "table.json").exists():
        if (network := read_about(run)["model"]) is not None:
            raise ConfigError(
                f"{run} has the network {network}; only moml's own networks can be exported"
            )
        table = load_table_run(run)
        if client is not None:
            raise ConfigError("client is for federated runs; tasks of a table's run are exported")
    card, arrays = network_card(run, client) if table is None else table_card(table)
    made_by = f"moml {versions()['moml']}"
    content = {"format": FORMAT, "made_by": made_by, **card, "how_to_use": HOW}
    with building(out) as folder:
        write_text(json.dumps(content, indent=1) + "\n", folder / "card.json")
        write_arrays(folder / "params.safetensors", arrays)
        if table is not None and tasks and table.tasks.places:
            store = table.tasks
            blocks = (personal_arrays(personal) for personal, _ in store.blocks())
            write_blocks(folder / "tasks.safetensors", len(store.places), blocks)
            write_ids(folder, [*store.places], store.rows.tolist())
        write_bytes(PREDICTOR.read_bytes(), folder / "moml_serve.py")
        for name, graph in graphs(card, arrays).items() if format == "onnx" else ():
            write_bytes(graph, folder / name)
    return out


def table_card(run: TableRun) -> tuple[Record, dict[str, np.ndarray]]:
    """The card and the arrays of a table's model."""
    about, target = run.about, run.columns.target
    used = {name: run.models[name] for name in dict.fromkeys(["personal", about["cold"]])}
    arrays = {f"residuals/{k}": some for k, some in run.residuals.items()}
    models = {}
    for name, model in used.items():
        arrays |= named_leaves(model.knots._asdict(), f"{name}/knots")
        for kind, meta in model.metas.items():
            for leaf, array in named_leaves(meta).items():
                arrays[f"{name}/{kind}/{leaf.removeprefix('params/')}"] = np.asarray(array)
        arrays |= named_leaves(model.simple, f"{name}/simple")
        if model.stack is not None:
            arrays |= named_leaves(model.stack._asdict(), f"{name}/stack")
        shape = model.shape
        models[name] = {
            "simple": {kind: type(one).__name__ for kind, one in model.simple.items()},
            "kinds": [*model.metas], "classes": shape.classes, "ordered": shape.ordered,
            "hidden": list(shape.hidden), "steps": STEPS,
        }  # fmt: skip
    unit = f"the unit of {target.name}" if not target.classes else "classes, with probabilities"
    card = {
        "kind": "table", "task": about["task"], "order": about["order"], "target": about["target"],
        "predictions_in": unit, "shots": about["shots"], "cold": about["cold"],
        "columns": run.columns.to_json(), "models": models, "scores": run.evaluation,
    }  # fmt: skip
    return card, arrays


def personal_arrays(personal: PersonalParams) -> dict[str, np.ndarray]:
    """Personal parameters by their names in an export: summary, head/weight, ..."""
    heads = {
        f"{kind}/{name.rpartition('/')[2]}": leaf
        for kind, tree in personal.heads.items()
        for name, leaf in named_leaves(tree).items()
    }
    return {"summary": personal.summary, **heads}
