"""Tables with few tasks: cross-fitted members of all kinds, and the same answers everywhere."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from moml.algorithms.tabular.mixed import MixedModel
from moml.algorithms.tabular.stack import Stack
from moml.errors import CheckpointError, ConfigError
from moml.runtime.mesh import mesh
from moml.serving.export import export
from moml.serving.forget import forget
from moml.storage.arrays import read_arrays, write_arrays
from moml.storage.manifest import seal
from moml.tabular.fitting import crossfit, training
from moml.tabular.fitting.crossfit import deal
from moml.tabular.run import load_table_run
from moml.tabular.train import train_table

TASKS, ROWS = 16, 8
QUICK = {"task": "who", "target": "y", "order": "t", "iterations": 40, "members": 1}


def table(tasks=TASKS, first=0, seed=0):
    """y = u_i + (1 + 0.5 v_i) x + 0.3 t + noise; z is constant within tasks and says nothing."""
    rng = np.random.default_rng(seed)
    who, t = np.repeat(np.arange(tasks), ROWS), np.tile(np.arange(ROWS), tasks)
    x, u, v = rng.normal(size=len(who)), rng.normal(size=tasks), rng.normal(size=tasks)
    y = u[who] + (1 + 0.5 * v[who]) * x + 0.3 * t + 0.1 * rng.normal(size=len(who))
    return {"who": who + first, "t": t, "x": x, "z": rng.normal(size=tasks)[who], "y": y}


def some(columns, rows):
    return {name: values[rows] for name, values in columns.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_table(table(), tmp_path_factory.mktemp("few") / "run", **QUICK)


NEW = table(3, first=100, seed=7)


def test_a_mixed_model_decides_where_it_is_right(run):
    """Networks of 40 steps know nothing: the table is linear."""
    weights = dict(zip(run.model.kinds, run.model.stack.weights[-1], strict=True))
    assert weights.get("slopes", 0) + weights.get("spline", 0) + weights.get("curves", 0) > 0.6
    assert abs(sum(weights.values()) - 1) < 1e-9 and min(weights.values()) >= 0
    rows = {(r["model"], r["shots"]): r["mean"] for r in run.evaluation}
    most = max(r["shots"] for r in run.evaluation)
    for name in ("pooled", "per-task", "shrunken-mean"):
        assert rows["personal", most] < 1.02 * rows[name, most]
    assert {r["tasks"] for r in run.evaluation} == {TASKS}
    trees = [r["shots"] for r in run.evaluation if r["model"] == "lightgbm"]
    assert trees == [r["shots"] for r in run.evaluation if r["model"] == "per-task"]
    assert run.about["held_out"] == [] and len(run.about["trained"]) == TASKS


def test_a_task_is_scored_by_members_that_have_not_seen_it(monkeypatch):
    """A task's own targets change what its fold's members answer for it by its support alone."""
    seen = []
    fit = crossfit.learn_rivals
    monkeypatch.setattr(
        crossfit, "learn_rivals", lambda x, y, s, q, c: seen.append((y, s)) or fit(x, y, s, q, c)
    )
    asked = []

    class Trees:
        def __init__(self, mine):
            self.mine = {int(i) for i in mine}

        def answers(self, x, y, support, which, query, classes):
            asked.append((self.mine, {int(rows[0]) // ROWS for rows in support if len(rows)}))
            return {}

    monkeypatch.setattr(
        crossfit, "boosted", lambda x, y, groups, folds, **how: [Trees(mine) for mine in folds]
    )
    train_table(table(), **QUICK)
    assert all(tasks <= mine for mine, tasks in asked) and len(asked) > 2
    folds, [_, whole] = seen[:-1], seen[-1]
    assert len(folds) == 2 and len(whole) == TASKS
    first = [{int(rows[0]) for rows in support} for _, support in folds]
    assert not first[0] & first[1] and len(first[0] | first[1]) == TASKS


def test_members_of_folds_are_spread_over_the_devices(monkeypatch):
    """With the mesh of `--devices`; that results are equal is tested in test_devices."""
    grids, train = [], crossfit.train_members

    def alone(*args, mesh, **how):
        grids.append(mesh)
        return train(*args, **how)

    grid = mesh(1)
    monkeypatch.setattr(crossfit, "train_members", alone)
    monkeypatch.setattr("moml.tabular.train.mesh", lambda devices: grid)
    train_table(table(), devices=2, **QUICK)
    assert grids == [grid]


@pytest.mark.parametrize("kinds", [None, ["summary"]])
def test_tasks_that_bring_more_rows_than_a_visit_has(kinds):
    """Beyond 32 rows memories are candidates; of members that do not adapt they are empty."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(8), 80)
    x = rng.normal(size=len(who))
    data = {"who": who, "x": x, "y": rng.normal(size=8)[who] + x}
    how = {"task": "who", "target": "y", "shots": 40, "members": 1, "iterations": 4, "refit": True}
    run = train_table(data, kinds=kinds, **how)
    assert np.isfinite(run.predict({"who": [1, 99], "x": [0.0, 1.0]}).columns["prediction"]).all()


def test_a_task_has_no_part_in_when_the_members_of_its_fold_stop():
    """Members [settings * folds] by the losses of the other folds' tasks, in loops."""
    rng = np.random.default_rng(0)
    folds = np.array([0, 1, 2, 1, 0])
    loss = rng.random((3, 5))
    found = training.over_folds(loss, folds).sum(axis=1)
    for f in range(3):
        others = [loss[folds[i], i] for i in range(5) if folds[i] != f]
        np.testing.assert_allclose(found[f], sum(others))


def test_folds_hold_each_task_once():
    sizes = np.array([1, 5, 5, 5, 5, 1, 5])
    fold = deal(sizes, 3, np.random.default_rng(0))
    assert np.bincount(fold[sizes > 1]).tolist() in ([2, 2, 1], [2, 1, 2], [1, 2, 2])
    assert deal(np.array([4, 1]), 6, np.random.default_rng(0)).max() == 1


def test_opened_adapted_and_exported_runs_answer_alike(run, tmp_path):
    known, query = some(NEW, NEW["t"] < 3), some(NEW, NEW["t"] >= 3)
    wanted = run.predict(query, adapt_on=known).columns["prediction"]
    opened = load_table_run(run.folder)
    again = opened.predict(query, adapt_on=known).columns["prediction"]
    np.testing.assert_array_equal(again, wanted)
    made = opened.adapt(some(known, known["t"] < 1), tmp_path / "one")
    later = made.predict(query, adapt_on=some(known, known["t"] >= 1)).columns["prediction"]
    assert np.abs(later - wanted).max() < 0.05  # heads of networks are updated approximately
    export(run.folder, tmp_path / "export")
    spec = importlib.util.spec_from_file_location("serve", tmp_path / "export" / "moml_serve.py")
    serve = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serve)
    served = serve.load(tmp_path / "export")
    widths = []
    far = query | {"x": 20 * query["x"]}  # lines go on outside of the range, and end
    for asked, how in ((query, {"adapt_on": known}), (query, {}), (table(), {}), (far, {})):
        theirs = served.predict(asked, interval=0.9, **how)
        ours = run.predict(asked, interval=0.9, **how).columns
        for name in ("prediction", "lower", "upper"):
            np.testing.assert_allclose(theirs[name], ours[name], atol=1e-5)
        widths.append(ours["upper"] - ours["lower"])
    assert all(np.isfinite(width).all() for width in widths)
    assert np.ptp(widths[0]) > 1e-3 * widths[0].mean()  # kinds differ more for some rows
    with pytest.raises(ConfigError, match="a graph has networks alone"):
        export(run.folder, tmp_path / "onnx", format="onnx")


def test_effects_after_rows_in_two_parts_are_as_at_once(run):
    """Mixed models alone: exactly."""
    kinds, simple = run.model.kinds, run.model.simple
    at = next(i for i, kind in enumerate(kinds) if isinstance(simple.get(kind), MixedModel))
    alone = Stack(np.zeros(1, int), np.eye(len(kinds))[[at]])
    mixed = replace(run, models=run.models | {"personal": replace(run.model, stack=alone)})
    known, query = some(NEW, NEW["t"] < 4), some(NEW, NEW["t"] >= 4)
    once = mixed.predict(query, adapt_on=known).columns["prediction"]
    half = mixed.adapt(some(known, known["t"] < 2))
    twice = half.predict(query, adapt_on=some(known, known["t"] >= 2)).columns["prediction"]
    np.testing.assert_allclose(twice, once, rtol=1e-9)


def test_a_forgotten_task_leaves_its_effects(run, tmp_path):
    run.save(tmp_path / "copy")
    forget(tmp_path / "copy", ["3"])
    assert "3" not in load_table_run(tmp_path / "copy").tasks.places
    arrays = read_arrays(tmp_path / "copy" / "personal.safetensors")
    assert {len(array) for array in arrays.values()} == {TASKS - 1}


@pytest.mark.parametrize("what", ["weights", "column", "effects"])
def test_damaged_members_are_refused(run, tmp_path, what):
    folder = tmp_path / "copy"
    run.save(folder)
    file = folder / ("personal.safetensors" if what == "effects" else "model.safetensors")
    arrays = {name: np.array(array) for name, array in read_arrays(file).items()}
    if what == "weights":
        arrays["personal/stack/weights"] = arrays["personal/stack/weights"][:, 1:]
    elif what == "column":
        name = next(name for name in arrays if name.endswith("/random"))
        arrays[name] = arrays[name] + 1000
    else:
        name = next(name for name in arrays if name.endswith("/mean"))
        arrays[name] = np.concatenate([arrays[name], arrays[name]], axis=1)
    file.unlink()
    write_arrays(file, arrays)
    (folder / "manifest.json").unlink()
    seal(folder)
    with pytest.raises(CheckpointError):
        load_table_run(folder)


def test_many_tasks_and_chosen_kinds_are_not_cross_fitted(monkeypatch):
    few = {"iterations": 4, "members": 1}
    base = table(200)
    assert train_table(base, task="who", target="y", **few).model.stack is not None
    monkeypatch.setattr("moml.tabular.train.FEW", 200)
    assert train_table(base, task="who", target="y", **few, refit=False).model.stack is None
    chosen = train_table(table(), task="who", target="y", kinds=["summary"], **few)
    assert chosen.model.stack is None and not chosen.model.simple


@pytest.mark.parametrize("given", [{"hold_out": 0.2}, {"refit": False}])
def test_options_of_a_held_out_part_are_refused(given):
    with pytest.raises(ConfigError, match=r"is cross-fitted: .* such as --kinds summary head"):
        train_table(table(), task="who", target="y", **given)
