"""What is wrong with a table is said in one line that names file, column and row."""

import gzip
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from moml.data import as_table, read_table, write_table
from moml.data.table import csv_files as csv_module
from moml.errors import DataError


def error_of(call):
    with pytest.raises(DataError) as caught:
        call()
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2
    return str(caught.value)


CASES = {
    "empty": (b"", {}, "{} is empty"),
    "blank": (b"\n \n", {}, "{} is empty"),
    "no rows": (b"a,b\n", {}, "{} has no rows"),
    "no header": (b"1,2.5\n3,4\n", {}, "{}: the first row must have the columns' names"),
    "twice": (b"a,b,a\n1,2,3\n", {}, "{} has two columns of the name a"),
    "no column": (b"a,b\n1,2\n", {"columns": ["age"]}, "{} has no column age; there are: a, b"),
    "nearly": (
        b"a, Age\n1,2\n",
        {"columns": ["Age"]},
        "{} has no column Age; there are: a,  Age; is it ' Age'?",
    ),
    "not a number": (
        b"age\n1\n2\nabc\n4\n",
        {},
        "{}, column age, row 3: 'abc' is not a number, as 3 of 4 values are",
    ),
    "spaces": (b"a,b\n1,2\n1, 3 \n1,x y\n1,5\n", {}, "{}, column b, row 3: 'x y' is not a number"),
    "not a date": (
        b"day\n2024-01-01\n2024-01-02\nsoon\n",
        {},
        "{}, column day, row 3: 'soon' is not a date, as 2 of 3 values are",
    ),
    "zones": (
        b"t\n2024-01-01T00:00:00Z\n2024-01-01T00:00:00\n",
        {},
        "{}, column t, row 2: '2024-01-01T00:00:00' is not a date, as the others are",
    ),
    "no such day": (
        b"t\n2024-01-01\n2024-02-01\n2024-02-30\n2024-03-01\n",
        {},
        "{}, column t, row 3: '2024-02-30' is not a date, as the others are",
    ),
    "few cells": (b"a,b\n1,2\n3\n", {}, "{}, row 2: 1 instead of 2 cells: '3'"),
    "many cells": (b"a,b\n1,2\n3,4,5\n", {}, "{}, row 2: 3 instead of 2 cells: '3,4,5'"),
    "latin": (b"a,b\n1,x\n2,caf\xe9\n", {}, "{}, column b, row 2: b'caf\\xe9' is not UTF-8"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), {}, "{} is UTF-16; save the file as UTF-8"),
    "open quote": (
        b'a,b\n1,x\n2,"y\n3,x\n4,x\n',
        {},
        "{}: a quote in the last column has no end; it holds the last 2 rows",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_csv(tmp_path, case):
    content, options, words = CASES[case]
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    assert error_of(lambda: read_table(path, **options)).startswith(words.format(path))


LATE = {
    "a number": (b"7,1.5\n", b"7,abc\n", ", column b, row {}: 'abc' is not a number"),
    "a whole number": (b"7,1\n", b"7,abc\n", ", column b, row {}: 'abc' is not a number"),
    "a date": (b"7,2024-05-05\n", b"7,later\n", ", column b, row {}: 'later' is not a date"),
    "no such day": (b"7,2024-05-05\n", b"7,2024-05-32\n", ", column b, row {}: '2024-05-32' is"),
    "a zone": (b"7,2024-05-05 01:00\n", b"7,2024-05-05T01:00Z\n", ", column b, row {}: '2024-05"),
    "a cell too few": (b"7,1.5\n", b"7\n", ", row {}: 1 instead of 2 cells: '7'"),
    "a cell too few after text": (b"7,x\n", b"7\n", ", row {}: 1 instead of 2 cells: '7'"),
    "a line cut in the middle": (b'7,"x"\n', b'"7', ", row {}: 1 instead of 2 cells"),
    "bytes": (b"7,x\n", b"7,\xff\n", ", column b, row {}: b'\\xff' is not UTF-8"),
}


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize("case", LATE)
def test_one_bad_line_at_the_end_of_many_blocks(tmp_path, monkeypatch, case, ending):
    monkeypatch.setattr(csv_module, "BLOCK", 1 << 12)
    good, bad, words = LATE[case]
    path = tmp_path / f"long.{ending}"
    content = b"a,b\n" + 20_000 * good + bad
    path.write_bytes(gzip.compress(content, 1) if ending == "csv.gz" else content)
    found = error_of(lambda: read_table(path))
    assert found.startswith(str(path) + words.format("20,001")), found


def test_rows_are_counted_as_they_are_read(tmp_path, monkeypatch):
    """Blank lines and line breaks in quotes are no rows of their own."""
    monkeypatch.setattr(csv_module, "BLOCK", 1 << 12)
    path = tmp_path / "lines.csv"
    path.write_bytes(b"a,b,c\n" + b'1,"two\nlines",3\n\n' * 1000 + b'1,"x",bad\n')
    assert "column c, row 1,001: 'bad'" in error_of(lambda: read_table(path))
    assert read_table(path, text=["c"]).rows == 1001


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "t.parquet"
    write_table({"a": np.arange(1000.0), "s": ["x", "yy"] * 500}, path)
    return path.read_bytes()


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv.gz"])
def test_a_file_that_is_none_of_its_kind(tmp_path, ending):
    path = tmp_path / f"wrong.{ending}"
    path.write_bytes(b"this is no table at all" * 10)
    assert error_of(lambda: read_table(path)).startswith(f"{path} cannot be read: ")


def test_broken_footer_and_truncated_files(tmp_path, good):
    path = tmp_path / "t.parquet"
    for cut in (4, 8, 100, len(good) // 2, len(good) - 3):
        path.write_bytes(good[:-cut])
        assert error_of(lambda: read_table(path)).startswith(f"{path} cannot be read: ")
    path.write_bytes(good[:-8] + b"\xff\xff\xff\x7f" + good[-4:])
    assert error_of(lambda: read_table(path)).startswith(f"{path} cannot be read: ")
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:-9])
    assert error_of(lambda: read_table(packed)).startswith(f"{packed} cannot be read: ")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_flipped_bytes_are_an_error_or_a_table(tmp_path, ending):
    path, generator = tmp_path / f"t.{ending}", np.random.default_rng(0)
    write_table({"a": np.arange(100.0), "s": ["x", "yy"] * 50, "t": ["2024-01-01"] * 100}, path)
    good, failed = path.read_bytes(), 0
    for at in generator.integers(0, len(good), 60):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
        try:
            read_table(path)
        except DataError as error:
            failed += 1
            assert str(path) in str(error) and "\n" not in str(error)
    assert failed > 5


def test_endings_folders_and_files_that_differ(tmp_path):
    sheet = tmp_path / "book.xlsx"
    sheet.write_bytes(b"x")
    assert "must end in .parquet, .pq, .csv" in error_of(lambda: read_table(sheet))
    assert "does not exist" in error_of(lambda: read_table(tmp_path / "no.csv"))
    assert "has no file that ends in" in error_of(lambda: read_table(tmp_path))
    one, two = tmp_path / "1.csv", tmp_path / "2.csv"
    one.write_text("a,b\n1,x\n")
    two.write_text("a\n1\n")
    assert error_of(lambda: read_table(tmp_path)).startswith(
        f"column b is in {one} but not in {two}"
    )
    two.write_text("a,b\n1,5\n")
    found = error_of(lambda: read_table(tmp_path))
    assert found.startswith(f"column b is text in {one} but number in {two}")
    assert read_table(tmp_path, text=["b"]).columns["b"].words.to_pylist() == ["x", "5"]


def test_parquet_with_columns_that_cannot_be_used(tmp_path):
    path = tmp_path / "t.parquet"
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    parquet.write_table(twice, path)
    assert "two columns of the name a" in error_of(lambda: read_table(path))
    parquet.write_table(pa.table({"l": [[1]], "x": [np.nan]}), path)
    table = read_table(path, columns=["l", "x"])
    for name, why in {"l": "type list<", "x": "it has no value"}.items():
        found = error_of(lambda name=name: table.column(name))
        assert found.startswith(f"{path}: column {name} cannot be used: {why}")
    parquet.write_table(pa.table({"x": pa.array([], pa.float64())}), path)
    assert "has no rows" in error_of(lambda: read_table(path))


def test_columns_in_memory_must_be_columns():
    assert "equally long" in error_of(lambda: as_table({"a": [1], "b": [1, 2]}))
    assert "equally long and not empty" in error_of(lambda: as_table({"a": []}))
    assert "all numbers, texts or dates" in error_of(lambda: as_table({"a": [1, "x"]}))
    table = as_table({"a": [1], "n": [None]})
    assert "has no column b; there are: a, n" in error_of(lambda: table.column("b"))
    assert "column n cannot be used" in error_of(lambda: table.column("n"))


def test_without_pyarrow_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.csv").write_text("a\n1\n")
    found = error_of(lambda: read_table(tmp_path / "t.csv"))
    assert found == "tables need pyarrow: pip install 'moml[table]'"
