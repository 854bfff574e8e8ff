"""Tables written: whole or not at all; beside a table's own columns, untouched."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from moml.data import extend_table, read_table, write_table
from moml.data.table import write as module
from moml.errors import DataError, MomlWarning

GIVEN = 'id,n,w\n007,NA,"x, ""y"""\n8,,\n9,1e3,"a\nb"\n'


def error_of(call):
    with pytest.raises(DataError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "given.csv"
    path.write_text(GIVEN)
    return path


def test_a_csv_keeps_its_text(source, tmp_path):
    out = tmp_path / "new" / "out.csv"
    extend_table(source, {"prediction": np.array([0.5, 1 / 3, 2]), "c": ["u", None, "v,w"]}, out)
    assert out.read_text() == (
        "id,n,w,prediction,c\n"
        '007,NA,"x, ""y""",0.5,u\n'
        "8,,,0.3333333333333333,\n"
        '9,1e3,"a\nb",2,"v,w"\n'
    )
    extend_table(source, {"p": [1, 2, 3]}, tmp_path / "out.csv.gz")
    assert gzip.decompress((tmp_path / "out.csv.gz").read_bytes()).startswith(b"id,n,w,p\n007,")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_from_csv_to_typed_columns(source, tmp_path, ending):
    out = tmp_path / f"out.{ending}"
    extend_table(source, {"prediction": np.float32([1, 2, 3])}, out, text=["id"])
    table = read_table(out)
    assert [table.columns["id"].word(i) for i in range(3)] == ["007", "8", "9"]
    np.testing.assert_array_equal(table.columns["n"].values, [np.nan, np.nan, 1000])
    assert table.columns["prediction"].values.dtype == np.float32


def test_a_column_that_nobody_reads_may_hold_anything(tmp_path):
    path = tmp_path / "given.csv"
    path.write_text("x,memo\n1,1\n2,2\n3,oops\n")
    for ending in ("csv", "parquet"):
        extend_table(path, {"p": [1, 2, 3]}, tmp_path / f"out.{ending}")
        assert read_table(tmp_path / f"out.{ending}", text=["memo"]).rows == 3


def test_types_of_a_typed_source_stay(tmp_path):
    given = pa.table(
        {
            "l": [[1, 2], None],
            "d": pa.array([1, None], pa.date32()),
            "k": pa.array([1, 2], pa.int8()),
            "c": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    parquet.write_table(given, tmp_path / "given.parquet")
    extend_table(tmp_path / "given.parquet", {"p": [0.5, 0.25]}, tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.select(["l", "d", "k"]).equals(given.select(["l", "d", "k"]))
    assert found["c"].to_pylist() == ["a", "b"] and found["p"].to_pylist() == [0.5, 0.25]


def test_a_folder_becomes_one_file_in_order(tmp_path):
    folder = tmp_path / "parts"
    write_table({"a": [3, 4]}, folder / "b.parquet")
    write_table({"a": [0.5]}, folder / "c.parquet")
    write_table({"a": [1, 2]}, folder / "a.parquet")
    extend_table(folder, {"p": np.arange(5)}, tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert found == {"a": [1, 2, 3, 4, 0.5], "p": [0, 1, 2, 3, 4]}


def test_what_cannot_be_written_leaves_nothing(source, tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("was here\n")
    for columns, words in {
        "short": ({"p": [1, 2]}, "must have as many rows as its new columns, 2"),
        "long": ({"p": [1, 2, 3, 4]}, "must have as many rows as its new columns, 4"),
        "taken": ({"n": [1, 2, 3]}, "has a column n already; rename it first"),
        "nested": ({"p": [[1], [2], [3]]}, "out.csv cannot be written: Unsupported cast"),
    }.values():
        assert words in error_of(lambda columns=columns: extend_table(source, columns, out))
    assert "equally long" in error_of(lambda: write_table({"a": [1], "b": [1, 2]}, out))
    assert "must end in" in error_of(lambda: write_table({"a": [1]}, tmp_path / "out.xlsx"))
    below = out / "x.csv"
    assert f"{below} cannot be written: " in error_of(lambda: write_table({"a": [1]}, below))
    assert out.read_text() == "was here\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given.csv", "out.csv"]


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_an_interrupted_write_leaves_nothing(source, tmp_path, monkeypatch, ending):
    class Stop(BaseException):
        pass

    def stops(*given):
        yield next(rows(*given))
        raise Stop

    rows = module._rows
    monkeypatch.setattr(module, "_rows", stops)
    with pytest.raises(Stop):
        extend_table(source, {"p": [1, 2, 3]}, tmp_path / f"out.{ending}")
    assert [path.name for path in tmp_path.iterdir()] == ["given.csv"]


def test_a_broken_source_is_named(tmp_path):
    path = tmp_path / "given.csv"
    path.write_text("a,b\n1,2\n3\n")
    found = error_of(lambda: extend_table(path, {"p": [1, 2]}, tmp_path / "out.csv"))
    assert found == f"{path}, row 2: 1 instead of 2 cells: '3'"
    assert [p.name for p in tmp_path.iterdir()] == ["given.csv"]


FORMULAS = ["=HYPERLINK(1)", "+cmd|' /C'!A0", "-1+2", "@SUM(1)", "\t=1"]


@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_in_a_csv_are_a_warning_or_texts(tmp_path, formula):
    path, columns = tmp_path / "t.csv", {"y": ["-1.5", formula, "a=b"], "n": [-1.0, 2.0, 3.0]}
    with pytest.warns(MomlWarning, match=r"t\.csv has cells that a spreadsheet takes as formulas"):
        write_table(columns, path)
    assert read_table(path, text=["y"]).columns["y"].words.to_pylist() == columns["y"]
    write_table(columns, path, safe=True)
    words = read_table(path, text=["y"]).columns["y"].words.to_pylist()
    assert words == ["-1.5", f"'{formula}", "a=b"]
    write_table({"y": ["-1.5", "a=b"]}, path)
    for other in ("t.parquet", "t.arrow"):
        write_table(columns, tmp_path / other)


def test_formulas_in_names_and_copied_cells_are_made_texts(tmp_path):
    source, path = tmp_path / "s.csv", tmp_path / "t.csv"
    source.write_text("user,x\n=1+1,-2\n-3,+4\n")
    extend_table(source, {"probability_a": [0.5, 0.5], "=2": ["b", "@c"]}, path, safe=True)
    assert path.read_text() == "user,x,probability_a,'=2\n'=1+1,-2,0.5,b\n-3,+4,0.5,'@c\n"
