import filecmp

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import moml
from moml.tabular import fit as table_fit
from moml.tabular import program as table_program
from moml.tabular import tables
from moml.tabular.fit import fit_groups
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
    tables.save_table_run(run, tmp_path / "saved")
    names = sorted(path.name for path in folder.iterdir())
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == names
    assert filecmp.cmpfiles(folder, tmp_path / "saved", names, shallow=False)[0] == names
    with pytest.raises(moml.ConfigError, match="exists already"):
        tables.save_table_run(run, tmp_path / "saved")


def test_it_predicts_adapts_and_scores_alike(run, folder, tmp_path):
    told, new = tables.load_table_run(folder), users(4, seed=3, first=70)
    early, late = some(new, new["day"] < 4), some(new, new["day"] >= 4)
    both = [tables.predict_table(each, late, adapt_on=early) for each in (run, told)]
    first = both[0].columns["prediction"]
    np.testing.assert_array_equal(first, both[1].columns["prediction"])
    mine = tables.adapt_table(run, early)
    assert mine.folder is None and set(mine.known.place) == set(new["user"])
    tables.save_table_run(mine, tmp_path / "mine")
    tables.adapt_table(told, early, tmp_path / "each")  # one file a task
    for made in (
        mine,
        tables.load_table_run(tmp_path / "mine"),
        tables.load_table_run(tmp_path / "each"),
    ):
        np.testing.assert_array_equal(first, tables.predict_table(made, late).columns["prediction"])
    assert tables.evaluate_table(run, new) == tables.evaluate_table(told, new)


def test_tables_of_other_libraries(run, table):
    rows = some(table, np.arange(40))
    told = tables.predict_table(run, rows).columns["prediction"]
    for frame in (pd.DataFrame(rows), pa.table(rows)):
        np.testing.assert_array_equal(tables.predict_table(run, frame).columns["prediction"], told)
    with pytest.raises(moml.DataError, match="'x' with type str"):
        tables.predict_table(run, pd.DataFrame(rows | {"x": [1, "x"] * 20}, dtype=object))


def test_tables_of_like_shapes_share_programs(table):
    rng = np.random.default_rng(0)
    table_program.compiled.cache_clear()
    for n in (100, 120):
        x = rng.normal(size=(n, 2))
        groups = np.array_split(rng.permutation(n), 20)
        fit_groups(x, x[:, 0], groups, shots=2, members=1, iterations=20, kinds=["pooled"], seed=n)
    assert table_program.compiled.cache_info().misses == 1
    made = table_program.compiled("pooled", table_fit.Shape(2), 2, 20)
    assert made.first._cache_size() == made.stretch._cache_size() == 1
