import filecmp

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import moml
from tests.support.small_table import some, users

SETTINGS = {"task": "user", "target": "y", "order": "day", "shots": 4, "iterations": 60}
SETTINGS |= {"members": 1, "kinds": ["head"], "refit": False}


@pytest.fixture(scope="module")
def table():
    return users(60, seed=0)


@pytest.fixture(scope="module")
def run(table):
    return moml.train_table(pd.DataFrame(table, index=table["day"]), **SETTINGS)


@pytest.fixture(scope="module")
def folder(table, run, tmp_path_factory):
    """The same training, left in a folder."""
    place = tmp_path_factory.mktemp("tables") / "run"
    moml.train_table(table, place, **SETTINGS)
    return place


def test_a_run_in_memory_is_the_one_in_a_folder(run, folder, tmp_path):
    assert run.folder is None
    run.save(tmp_path / "saved")
    names = sorted(path.name for path in folder.iterdir())
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == names
    assert filecmp.cmpfiles(folder, tmp_path / "saved", names, shallow=False)[0] == names
    with pytest.raises(moml.errors.ConfigError, match="exists already"):
        run.save(tmp_path / "saved")


def test_it_predicts_adapts_and_scores_alike(run, folder, tmp_path):
    told, new = moml.load(folder), users(4, seed=3, first=70)
    early, late = some(new, new["day"] < 4), some(new, new["day"] >= 4)
    both = [each.predict(late, adapt_on=early) for each in (run, told)]
    first = both[0].columns["prediction"]
    np.testing.assert_array_equal(first, both[1].columns["prediction"])
    mine = run.adapt(early)
    assert mine.folder is None and set(mine.tasks.places) == set(new["user"])
    mine.save(tmp_path / "mine")
    told.adapt(early, tmp_path / "each")  # one file a task
    for made in (
        mine,
        moml.load(tmp_path / "mine"),
        moml.load(tmp_path / "each"),
    ):
        np.testing.assert_array_equal(first, made.predict(late).columns["prediction"])
    assert run.evaluate(new) == told.evaluate(new)


def test_tables_of_other_libraries(run, table):
    rows = some(table, np.arange(40))
    told = run.predict(rows).columns["prediction"]
    for frame in (pd.DataFrame(rows), pa.table(rows)):
        np.testing.assert_array_equal(run.predict(frame)["prediction"], told)
    with pytest.raises(moml.errors.DataError, match="'x' with type str"):
        run.predict(pd.DataFrame(rows | {"x": [1, "x"] * 20}, dtype=object))
