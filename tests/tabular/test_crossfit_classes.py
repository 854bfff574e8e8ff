"""Classes with few tasks: a logistic model beside networks, and the same answers everywhere."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from moml.algorithms.tabular.stack import Stack
from moml.errors import CheckpointError, ConfigError
from moml.serving.export import export
from moml.serving.forget import forget
from moml.storage.arrays import read_arrays, write_arrays
from moml.storage.manifest import seal
from moml.tabular.fitting import crossfit
from moml.tabular.run import load_table_run
from moml.tabular.train import train_table

TASKS, ROWS = 24, 8
BOTH = ["probability_no", "probability_yes"]


def table(tasks=TASKS, first=0, seed=0):
    """Log-odds of yes: u_i + x; z is constant within tasks and says nothing."""
    rng = np.random.default_rng(seed)
    who, t = np.repeat(np.arange(tasks), ROWS), np.tile(np.arange(ROWS), tasks)
    x = rng.normal(size=len(who))
    yes = 2 * rng.normal(size=tasks)[who] + x + rng.logistic(size=len(who)) > 0
    z = rng.normal(size=tasks)[who]
    return {"who": who + first, "t": t, "x": x, "z": z, "y": np.where(yes, "yes", "no")}


def some(columns, rows):
    return {name: values[rows] for name, values in columns.items()}


def probabilities(predicted):
    return np.column_stack([predicted[name] for name in BOTH])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The run, and what its weights were computed from."""
    seen, weighed = [], crossfit._weighed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossfit, "_weighed", lambda *given: seen.append(given) or weighed(*given))
        run = train_table(
            table(), tmp_path_factory.mktemp("few") / "run", task="who", target="y", order="t",
            iterations=40, members=1,
        )  # fmt: skip
    return run, seen[0]


@pytest.fixture(scope="module")
def run(fitted):
    return fitted[0]


NEW = table(3, first=100, seed=7)


def test_the_members_are_weighed_and_all_tasks_are_scored(fitted):
    run, (crossed, kinds, *_) = fitted
    assert kinds == ("summary", "steps", "level", "logistic")
    weights = dict(zip(run.model.kinds, run.model.stack.weights[-1], strict=True))
    assert weights["logistic"] > 0.25 and abs(sum(weights.values()) - 1) < 1e-9
    assert {row["tasks"] for row in run.evaluation} == {TASKS} and not run.residuals
    rows = {(r["model"], r["shots"], r["metric"]): r["mean"] for r in run.evaluation}
    most = max(r["shots"] for r in run.evaluation)
    for name in ("pooled", "per-task", "shrunken-mean"):
        assert rows["personal", most, "log_loss"] < 1.02 * rows[name, most, "log_loss"]
    for each in crossed.answers.values():
        for name in kinds:
            np.testing.assert_allclose(each[name].sum(axis=1), 1, rtol=1e-5)
    tried = {row["kind"]: row for row in run.model.scores}
    y = run.rows(table()).y[crossed.rows]
    own = crossed.answers[most]["logistic"][np.arange(len(y)), y]
    assert np.isclose(tried["logistic"]["loss"], -np.log(own).mean())


def test_opened_adapted_and_exported_runs_answer_alike(run, tmp_path):
    known, query = some(NEW, NEW["t"] < 3), some(NEW, NEW["t"] >= 3)
    wanted = probabilities(run.predict(query, adapt_on=known).columns)
    opened = load_table_run(run.folder)
    again = probabilities(opened.predict(query, adapt_on=known).columns)
    np.testing.assert_array_equal(again, wanted)
    made = opened.adapt(some(known, known["t"] < 1), tmp_path / "one")
    later = made.predict(query, adapt_on=some(known, known["t"] >= 1)).columns
    assert np.abs(probabilities(later) - wanted).max() < 0.05  # heads are updated approximately
    export(run.folder, tmp_path / "export")
    spec = importlib.util.spec_from_file_location("serve", tmp_path / "export" / "moml_serve.py")
    serve = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serve)
    served = serve.load(tmp_path / "export")
    for asked, how in ((query, {"adapt_on": known}), (query, {}), (table(), {})):
        theirs, ours = served.predict(asked, **how), run.predict(asked, **how).columns
        np.testing.assert_allclose(probabilities(theirs), probabilities(ours), atol=1e-5)
        assert (theirs["prediction"] == ours["prediction"]).all()
    with pytest.raises(ConfigError, match="a graph has networks alone"):
        export(run.folder, tmp_path / "onnx", format="onnx")


def test_intercepts_after_rows_in_two_parts_are_as_at_once(run):
    """The logistic model alone: exactly."""
    kinds = run.model.kinds
    alone = Stack(np.zeros(1, int), np.eye(len(kinds))[[kinds.index("logistic")]])
    only = replace(run, models=run.models | {"personal": replace(run.model, stack=alone)})
    known, query = some(NEW, NEW["t"] < 4), some(NEW, NEW["t"] >= 4)
    once = probabilities(only.predict(query, adapt_on=known).columns)
    half = only.adapt(some(known, known["t"] < 2))
    twice = half.predict(query, adapt_on=some(known, known["t"] >= 2)).columns
    np.testing.assert_allclose(probabilities(twice), once, rtol=1e-9)
    without = probabilities(only.predict(query).columns)
    assert np.abs(once - without).max() > 0.1


def test_a_forgotten_task_leaves_its_intercepts(run, tmp_path):
    run.save(tmp_path / "copy")
    forget(tmp_path / "copy", ["3"])
    assert "3" not in load_table_run(tmp_path / "copy").tasks.places
    arrays = read_arrays(tmp_path / "copy" / "personal.safetensors")
    assert "heads/logistic/logs" in arrays
    assert {len(array) for array in arrays.values()} == {TASKS - 1}


@pytest.mark.parametrize("what", ["spread", "outputs", "column", "nodes"])
def test_damaged_members_are_refused(run, tmp_path, what):
    folder = tmp_path / "copy"
    run.save(folder)
    file = folder / ("personal.safetensors" if what == "nodes" else "model.safetensors")
    arrays = {name: np.array(array) for name, array in read_arrays(file).items()}
    start = "heads/logistic" if what == "nodes" else "personal/simple/logistic"
    if what == "spread":
        arrays[f"{start}/spread"] = -arrays[f"{start}/spread"]
    elif what == "outputs":
        for part in ("beta", "spread"):
            arrays[f"{start}/{part}"] = np.repeat(arrays[f"{start}/{part}"], 3, axis=0)
    elif what == "column":
        arrays[f"{start}/fixed"] = arrays[f"{start}/fixed"] + 1000
    else:
        arrays[f"{start}/logs"] = arrays[f"{start}/logs"][..., 1:]
    file.unlink()
    write_arrays(file, arrays)
    (folder / "manifest.json").unlink()
    seal(folder)
    with pytest.raises(CheckpointError):
        load_table_run(folder)
