"""Polars and pandas frames: in and out, with their types."""

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from moml.data.table.columns import learn_columns
from moml.data.table.frame import as_table, read_table
from moml.data.table.write import write_table
from moml.errors import DataError, MomlWarning
from moml.tabular.rows import read
from moml.tabular.train import train_table
from tests.support.small_run import quick, small_run  # noqa: F401
from tests.support.small_run import visits as some_visits

FRAMES = {"polars": pl.DataFrame, "pandas": pd.DataFrame, "pyarrow": pa.table}


def visits(*given, **named):
    rows = some_visits(*given, **named)
    return rows | {"day": rows["day"].astype("M8[us]")}  # polars has no seconds


@pytest.fixture(scope="module")
def runs(tmp_path_factory, quick):  # noqa: F811
    """A run for numbers and one for classes, made once."""
    folder = tmp_path_factory.mktemp("frames")
    return {
        target: small_run(folder / target, visits(6, 0, target), ["summary"])
        for target in ("number", "two")
    }


@pytest.mark.filterwarnings("ignore::moml.errors.MomlWarning")
@pytest.mark.parametrize("target", ["number", "two"])
@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_comes_back_with_predictions(runs, kind, target):
    rows = visits(6, 1, target)
    given = FRAMES[kind](rows)
    made = runs[target].predict(given, adapt_on=given)
    want = runs[target].predict(rows, adapt_on=rows).columns
    assert type(made) is type(given)
    names = made.column_names if kind == "pyarrow" else list(made.columns)
    assert names == [*rows, *want]
    for name, values in want.items():
        np.testing.assert_array_equal(np.asarray(made[name]), values)
    if kind == "pyarrow":  # whose NaN equals no other
        made, given = made.to_pandas(), given.to_pandas()
    assert made[list(rows)].equals(given)


@pytest.mark.filterwarnings("ignore:rows outside")
def test_types_and_index_stay(runs):
    rows = visits(6, 1)
    given = pl.DataFrame(rows).with_columns(
        pl.col("kind").cast(pl.Categorical), pl.col("size").cast(pl.Float32)
    )
    given = given.with_columns(
        gone=pl.lit(None, pl.Int16), emb=pl.lit([1.0, 2.0]).cast(pl.Array(pl.Float32, 2))
    )
    made = runs["number"].predict(given)
    assert made.select(given.columns).equals(given, null_equal=True)
    assert {name: made.schema[name] for name in given.columns} == dict(given.schema)
    frame = pd.DataFrame(rows, index=np.arange(len(rows["y"])) * 10 + 7)
    frame = frame.astype({"kind": "category", "new": "boolean"}).assign(n=pd.array([1], "Int64")[0])
    told = runs["number"].predict(frame)
    pd.testing.assert_frame_equal(told[frame.columns], frame)
    np.testing.assert_allclose(told["prediction"], made["prediction"], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:rows outside")
def test_remarks_are_warnings_and_no_column_is_replaced(runs):
    given = pl.DataFrame(visits(2, 1, first=50))
    with pytest.warns(MomlWarning, match="no known rows of 2 of 2 tasks"):
        runs["number"].predict(given)
    twice = given.with_columns(prediction=0)
    with (
        pytest.warns(MomlWarning),
        pytest.raises(DataError, match="the table has a column prediction already"),
    ):
        runs["number"].predict(twice)
    with pytest.raises(DataError, match="columns by name or a frame; got LazyFrame"):
        inspect.unwrap(read)(given.lazy(), None, [])  # as users have it, without checks of types


def test_categories_stay_categories_though_they_are_numbers():
    shops = [3, 1, None, 3]
    for frame in (
        pd.DataFrame({"shop": pd.Categorical(shops), "y": 1.0}),
        pa.table({"shop": pa.array(shops).dictionary_encode(), "y": [1.0] * 4}),
    ):
        column = as_table(frame).column("shop")
        words = [*column.words.to_pylist(), None]
        assert (column.kind, [words[code] for code in column.values]) == (
            "text",
            ["3", "1", None, "3"],
        )
    enum = pl.Series(["b", None, "a", "b"], dtype=pl.Enum(["a", "b"]))
    assert as_table(pl.DataFrame({"e": enum})).column("e").kind == "text"
    assert as_table(pl.DataFrame({"i": pl.Series(shops)})).column("i").missing.tolist() == [
        False, False, True, False,
    ]  # fmt: skip


EMBEDDED = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)


def embedded(kind):
    """Rows whose target is a task's level and the second number of an embedding."""
    task = np.repeat(np.arange(20), 4)
    y = np.sin(task) + 2.0 * EMBEDDED[:, 1]
    if kind == "numpy":
        return {"task": task, "emb": EMBEDDED, "y": y}
    if kind == "polars":
        emb = pl.Series("emb", EMBEDDED.tolist(), dtype=pl.Array(pl.Float32, 3))
        return pl.DataFrame({"task": task, "emb": emb, "y": y})
    lists = pa.FixedSizeListArray.from_arrays(pa.array(EMBEDDED.ravel()), 3)
    table = pa.table({"task": task, "emb": lists, "y": y})
    if kind == "pandas":
        return table.to_pandas(types_mapper=pd.ArrowDtype)
    return table


def test_embeddings_are_inputs(tmp_path):
    few = {"task": "task", "target": "y", "members": 1, "kinds": ["head"], "refit": False}
    run = train_table(embedded("numpy"), iterations=60, **few)
    assert run.columns.names == ["emb[0]", "emb[1]", "emb[2]"]
    want = run.predict(embedded("numpy")).columns["prediction"]
    assert np.corrcoef(want, embedded("numpy")["y"])[0, 1] > 0.8
    for kind in ("polars", "pandas", "arrow"):
        np.testing.assert_array_equal(np.asarray(run.predict(embedded(kind))["prediction"]), want)
    place = tmp_path / "rows.parquet"
    write_table({name: embedded("arrow")[name] for name in ("task", "emb", "y")}, place)
    run.predict(place, tmp_path / "made.parquet")
    with pytest.raises(DataError, match=r"a CSV cannot hold column emb .* ends in .parquet"):
        run.predict(place, tmp_path / "made.csv")
    made = pl.read_parquet(tmp_path / "made.parquet")
    np.testing.assert_array_equal(made["prediction"], want)
    assert made.schema["emb"] == pl.Array(pl.Float32, 3)


def test_a_list_is_named_as_one_column(tmp_path):
    table = as_table(embedded("arrow"))
    assert table.named(["emb", "y"]) == ["emb[0]", "emb[1]", "emb[2]", "y"]
    assert learn_columns(table, "y", inputs=["emb"]).names == ["emb[0]", "emb[1]", "emb[2]"]
    assert learn_columns(table, "y", exclude=["emb"]).names == ["task"]
    with pytest.raises(DataError, match="no column embed; there are: task, emb"):
        table.named(["embed"])
    place = tmp_path / "rows.parquet"
    write_table({name: embedded("arrow")[name] for name in ("task", "emb", "y")}, place)
    assert list(read_table(place, columns=["y", "emb"]).columns) == [
        "y",
        "emb[0]",
        "emb[1]",
        "emb[2]",
    ]
    assert list(read_table(place, columns=["emb[2]"]).columns) == ["emb[2]"]
    with pytest.raises(DataError, match=r"has no column emb\[3\]; there are: task, emb, y"):
        read_table(place, columns=["emb[3]"])


def test_lists_without_a_value_and_of_texts():
    emb = pa.array([[1.0, None], None, [2.0, 3.0]], pa.list_(pa.float64(), 2))
    words = pa.array([["a", "b"]] * 3, pa.list_(pa.string(), 2))
    table = as_table(pa.table({"emb": emb, "words": words, "long": [[1.0], [], [2.0]]}))
    assert table.column("emb[0]").missing.tolist() == [False, True, False]
    assert table.column("emb[1]").missing.tolist() == [True, True, False]
    assert set(table.left_out) == {"words", "long"}
    with pytest.raises(DataError, match=r"type fixed_size_list<.*>\[2\] is no number"):
        table.column("words")
    with pytest.raises(DataError, match="; lists of numbers are inputs where their type has a"):
        table.column("long")


def test_lists_of_one_length_are_embeddings_whatever_their_type():
    rows = [[1.0, 2.0], [3.0, 4.0]]
    for given in (
        pd.DataFrame({"emb": [np.array(row) for row in rows]}),
        pl.DataFrame({"emb": rows}),
        {"emb": rows},
        {"emb": pa.array([*rows, None])},
    ):
        table = as_table(given)
        assert table.columns["emb[1]"].values[:2].tolist() == [2.0, 4.0] and not table.left_out
