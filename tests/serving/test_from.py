"""Going on from a run: a table with new tasks and rows, a run from another's parameters."""

import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

import moml
from moml.config.config import Config
from moml.config.problems import Sine
from moml.errors import CheckpointError, ConfigError
from moml.runs import runs
from moml.tabular.continuation import LEAST, continue_table
from moml.tabular.run import load_table_run
from tests.support.program import call, refused
from tests.support.small_run import quick, small_run, visits  # noqa: F401
from tests.support.small_table import written


@pytest.fixture(scope="module")
def old(tmp_path_factory, quick):  # noqa: F811
    """A run of nine people, 0 to 8."""
    return small_run(tmp_path_factory.mktemp("from") / "old", visits(9, 0), ["head"], order="day")


def rmse(run, rows, adapt_on=None):
    given = run.predict(rows, adapt_on=adapt_on).columns["prediction"]
    return float(np.sqrt(((given - rows["y"]) ** 2).mean()))


def test_few_tasks_join_and_the_common_parameters_stay(old, tmp_path, capsys):
    rows = visits(5, 3, first=7)  # two are known, three are new
    rows["kind"][0] = "never seen"
    file = written(tmp_path, "rows.parquet", rows)
    _, told, _ = call(capsys, "train", "--from", old.folder, "--data", file, "--out",
                      tmp_path / "new")  # fmt: skip
    assert f"{len(rows['y'])} rows of 5 tasks, 3 of them new" in told
    assert "a category that training had not in 1" in told
    assert "the common parameters stay as they are" in told
    new = load_table_run(tmp_path / "new")
    same = lambda a, b: np.testing.assert_array_equal(a, b)
    jax.tree.map(same, new.model.metas, old.model.metas)
    assert list(new.tasks.places) == [f"pers\u00f6n-{i}" for i in range(12)]
    count = lambda columns, id_: int((columns["person"] == id_).sum())
    for id_, place in new.tasks.places.items():
        assert new.tasks.rows[place] == count(visits(9, 0), id_) + count(rows, id_)
    asked = visits(12, 5)
    given = new.predict(asked).columns["prediction"]
    want = old.predict(asked, adapt_on=rows).columns["prediction"]
    np.testing.assert_allclose(given, want, rtol=1e-9)
    continued = {"hold_out": 0.2, "iterations": None, "seed": 0, "scored": False, "trained": False}
    assert new.about["continued"] == continued


def test_many_tasks_move_the_common_parameters_towards_them(old, tmp_path):
    rows = visits(LEAST + 16, 3, first=50)
    said = []
    new = continue_table(old.folder, rows, tmp_path / "new", iterations=100, say=said.append)
    learned = {*new.about["trained"]} - {*old.about["trained"]}
    held = {*new.about["held_out"]} - {*old.about["held_out"]}
    assert learned and held and learned | held == {*rows["person"].tolist()}
    assert f"{len(learned):,} tasks to learn from, {len(held):,} held out to score on" in said
    later = visits(20, 9, first=200)
    assert rmse(new, later) < 0.95 * rmse(old, later)
    assert {row["tasks"] for row in new.evaluation} == {len(held)}
    assert new.about["continued"]["scored"] and new.about["continued"]["trained"]
    joined = {k: len(r) for k, r in new.residuals.items()}
    assert all(joined[k] > len(r) for k, r in old.residuals.items())
    # who was known keeps how far they were from the rest, and how their rows were
    which = np.arange(9)
    before, after = old.tasks.take(which), new.tasks.take(which)
    np.testing.assert_array_equal(before.summary, after.summary)
    start = lambda run: run.model.metas["head"].params.head
    for part in ("weight", "bias"):
        own = [getattr(known.heads["head"], part) for known in (before, after)]
        common = [getattr(start(run), part)[None] for run in (old, new)]
        np.testing.assert_allclose(own[0] - common[0], own[1] - common[1], atol=1e-9)
        assert np.abs(common[0] - common[1]).max() > 1e-3


def test_what_does_not_fit_is_refused(old, tmp_path, capsys):
    rows = visits(3, 1)
    del rows["size"]
    file = written(tmp_path, "rows.csv", rows)
    for words, said in (
        (["--data", file], "has no column size"),
        (["--data", file, "--iterations", "0"], "iterations must be"),
    ):
        given = ("--from", old.folder, *words, "--out", tmp_path / "new")
        assert said in refused(capsys, "train", *given)
    assert not (tmp_path / "new").exists()


SMALL = Config(
    Sine(hidden=(5,)), method="moml-v1", iterations=4, log_every=2, score_every=4,
    save_seconds=0.0, test_tasks=4, test_steps=1, eta=1e-9,
)  # fmt: skip


def test_a_run_starts_from_the_parameters_of_another(tmp_path):
    runs.train(SMALL, tmp_path / "one")
    start = moml.load(tmp_path / "one").params
    runs.train(replace(SMALL, seed=5, keep=9), tmp_path / "two", source=tmp_path / "one")
    near = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5)
    jax.tree.map(near, moml.load(tmp_path / "two").params, start)  # eta is next to nothing
    other = replace(SMALL, problem=Sine(hidden=(6,)))
    with pytest.raises(
        ConfigError, match=r"must be the same: body/0/weight \[6, 1\]; got .* \[5, 1\]"
    ):
        runs.train(other, tmp_path / "three", source=tmp_path / "one")
    assert not (tmp_path / "three").exists()
    # killed early it goes on without the other run; before its first checkpoint it is refused
    for path in (tmp_path / "two" / "checkpoints").iterdir():
        if int(path.name):
            shutil.rmtree(path)
    shutil.rmtree(tmp_path / "one")
    runs.resume(tmp_path / "two")
    jax.tree.map(near, moml.load(tmp_path / "two").params, start)
    shutil.rmtree(tmp_path / "two" / "checkpoints")
    with pytest.raises(CheckpointError, match="was stopped before it began"):
        runs.resume(tmp_path / "two")
