"""Tables of many tasks: each setting is trained by itself, and those clearly worse are dropped."""

from itertools import pairwise

import numpy as np
import pytest

import moml
from moml.algorithms.tabular.members import Shape
from moml.tabular.fitting import training
from moml.tabular.fitting.calls import Calls
from moml.tabular.fitting.fit import fit_groups
from moml.tabular.rows import by_size
from moml.types import Batch, Task

QUICK = {"shots": 4, "members": 1, "iterations": 80}


@pytest.fixture(scope="module")
def table():
    """Slopes of their own, which an adapted head learns and a summary alone does not."""
    rng = np.random.default_rng(0)
    groups = np.split(np.arange(2400), 200)
    x = rng.normal(size=(2400, 2))
    y = x[:, 0] + 2 * rng.normal(size=200).repeat(12) * x[:, 1] + 0.1 * rng.normal(size=2400)
    return x, y / y.std(), groups


@pytest.fixture
def trained(monkeypatch):
    """The candidates that each stretch trains."""
    found, run = [], Calls.run

    def counted(self, pool, states, *given):
        found.append({(call.kind, i) for call in states for i in call.settings})
        return run(self, pool, states, *given)

    monkeypatch.setattr(Calls, "run", counted)
    return found


def test_what_is_clearly_worse_is_trained_for_a_quarter(table, trained, monkeypatch):
    every = {(kind, i) for kind in ("summary", "head") for i in range(len(training.ETAS))}
    whole = fit_groups(*table, **QUICK)
    assert trained == [every] * training.LOOKS
    trained.clear()
    monkeypatch.setattr(training, "LARGE", 100)
    model = fit_groups(*table, **QUICK)
    quarter = training.LOOKS // training.HALVE
    assert trained[:quarter] == [every] * quarter
    assert not {("summary", 0), ("summary", 1)} & set().union(*trained[quarter:])
    assert all(later <= earlier for earlier, later in pairwise(trained))
    # settings alone are as side by side, and what was dropped is listed as it was then
    assert [*model.metas] == [*whole.metas] == ["head"]
    loss = lambda made: {(row["kind"], row["eta"]): row["loss"] for row in made.scores}
    for (kind, eta), given in loss(model).items():
        i = training.ETAS.index(eta)
        if (kind, i) in trained[-1]:
            assert given == pytest.approx(loss(whole)[kind, eta], rel=1e-6)
        else:
            assert given > loss(whole)[kind, eta] - 1e-9
    assert all(row["kept"] is False for row in model.scores if row["kind"] == "summary")


def test_a_larger_rate_stays_beside_a_smaller_one(table):
    rng = np.random.default_rng(0)
    query = Batch(np.zeros((50, 1, 1)), np.zeros((50, 1)), np.ones((50, 1)))
    test = training.HeldOut(Task(query, query), 50)
    off = lambda size: size + 0.1 * rng.random((1, 50, 1))
    best = lambda *sizes: {
        (kind, i): training.Best(np.ones(1), np.ones((1, 1)), off(size))
        for (kind, i), size in zip([("head", 0), ("head", 1), ("pooled", 0)], sizes, strict=True)
    }
    lost = lambda *sizes: training._hopeless(
        set(best(*sizes)), best(*sizes), [0.003, 0.01], Shape(1), test
    )
    assert lost(1.0, 2.0, 9.0) == set()
    assert lost(2.0, 1.0, 9.0) == {("head", 0)}


def test_tasks_of_many_rows_come_in_smaller_batches(monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(600, 2)), rng.normal(size=600)
    lists = np.split(np.arange(600), [3, 40, 100, 101, 350])
    widths = []

    def sums(some, batch):
        widths.append(batch.mask.shape)
        return (batch.mask * batch.y).sum(axis=1)

    wanted = [y[rows].sum() for rows in lists]
    np.testing.assert_allclose(by_size(x, y, lists, sums), wanted)
    assert all(tasks == 64 for tasks, _ in widths)
    widths.clear()
    monkeypatch.setattr("moml.tabular.rows.BATCH", 2 * 256)
    np.testing.assert_allclose(by_size(x, y, lists, sums), wanted)
    assert {tasks * width for tasks, width in widths} == {256}


def test_tables_of_few_tasks_with_many_rows():
    """Before, the rows of a task were compared with each other: 16,000 x 16,000 numbers a task."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(4), 16_000)
    x, level = rng.normal(size=len(who)), np.array([-3.0, -1.0, 1.0, 3.0])
    y = x + level[who] + 0.1 * rng.normal(size=len(who))
    few = {"shots": 5, "members": 1, "iterations": 60}
    run = moml.train_table({"who": who, "x": x, "y": y}, task="who", target="y", **few)
    given = run.predict({"who": np.arange(4), "x": np.zeros(4)}).columns["prediction"]
    np.testing.assert_allclose(given, level, atol=0.5)


def test_tables_of_many_inputs(monkeypatch):
    """60 inputs have no splines, and fewer rows for trees; with more than `WIDEST` none of both."""
    monkeypatch.setattr("moml.tabular.summary.INPUTS", 2)
    rng = np.random.default_rng(0)
    who, x = np.repeat(np.arange(20), 8), rng.normal(size=(160, 60))
    table = {f"x{i}": x[:, i] for i in range(60)} | {"who": who}
    table["y"] = x[:, 0] + rng.normal(size=20)[who] + 0.1 * rng.normal(size=160)
    how = {"task": "who", "target": "y", "shots": 3, "members": 1, "iterations": 20}
    kinds = {row["kind"] for row in moml.train_table(table, **how).model.scores}
    assert {"summary", "intercept", "trees"} <= kinds and not kinds & {"spline", "curves"}
    monkeypatch.setattr("moml.tabular.train.WIDEST", 50)
    lines = []
    model = moml.train_table(table, **how, refit=False, say=lines.append).model
    assert model.stack is None and not model.simple
    assert "not cross-fitted: 60 encoded inputs are more than 50" in lines
