"""Tables read: every format gives the same columns; kinds, missing values, folders."""

import datetime
import decimal
import gzip

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from moml.data import as_table, read_table, write_table
from moml.data.table import csv_files as csv_module
from moml.data.table.frame import labels
from moml.errors import DataError

DAY = datetime.datetime(2024, 2, 29, 13, 30)
MIXED = {
    "user": ["u1", "u2", "u1", "u3"],
    "whole": [3, -7, 2**53 + 1, 0],
    "real": [0.5, None, float("inf"), 1e-300],
    "word": ["a, b", None, 'say "x"', "line\nbreak"],
    "yes": [True, None, False, True],
    "when": [DAY, None, DAY - datetime.timedelta(days=400), DAY],
}
KINDS = dict(user="text", whole="number", real="number", word="text", yes="flag", when="time")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(csv_module, "BLOCK", 1 << 12)


def plain(table):
    """Columns as lists of what people would write."""
    return {name: [c.word(i) for i in range(table.rows)] for name, c in table.columns.items()}


def csv(tmp_path, content, **options):
    path = tmp_path / "given.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, **options)


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz", "tsv", "arrow", "feather"])
def test_all_formats_give_the_same_table(tmp_path, ending):
    path = tmp_path / f"mixed.{ending}"
    write_table(MIXED, path)
    table, known = read_table(path), as_table(MIXED)
    assert {name: column.kind for name, column in table.columns.items()} == KINDS
    assert table.rows == 4 and table.left_out == {} and table.name == str(path)
    assert plain(table) == plain(known)
    assert plain(known)["word"] == ["a, b", "", 'say "x"', "line\nbreak"]
    assert table.columns["whole"].values.tolist() == MIXED["whole"]  # exact beyond 2**53
    assert table.columns["when"].values[0] == np.datetime64(DAY)
    for name in ("real", "word", "yes", "when"):
        assert table.columns[name].missing.tolist() == [value is None for value in MIXED[name]]


cell = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=6)
columns = st.integers(1, 8).flatmap(
    lambda n: st.fixed_dictionaries(
        {
            "real": st.lists(st.none() | st.floats(allow_nan=False), min_size=n, max_size=n),
            "word": st.lists(cell, min_size=n, max_size=n),
            "key": st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n),
        }
    )
)


@settings(max_examples=30, deadline=None)
@given(columns, st.sampled_from(["parquet", "csv", "arrow"]))
def test_what_is_written_is_read(tmp_path_factory, given_, ending):
    path = tmp_path_factory.getbasetemp() / f"round.{ending}"
    write_table(given_, path)
    found = read_table(path, text=["word"])
    words = [w if w and w.strip() and w not in csv_module.BLANK else "" for w in given_["word"]]
    for name, values in {"real": given_["real"], "key": given_["key"]}.items():
        if any(value is not None for value in values):
            want = np.array([np.nan if value is None else value for value in values])
            assert np.array_equal(
                found.columns[name].values, want, equal_nan=want.dtype.kind == "f"
            )
    if ending == "csv":
        assert plain(found).get("word", [""] * len(words)) == words


def test_text_is_what_it_looks_like_unless_said(tmp_path):
    rows = "code,zone\n007,1\n7,2\n011,x\n"
    assert csv(tmp_path, rows, columns=["code"]).columns["code"].values.tolist() == [7, 7, 11]
    table = csv(tmp_path, rows, text=["code", "zone"])
    assert plain(table) == {"code": ["007", "7", "011"], "zone": ["1", "2", "x"]}
    typed = as_table({"code": [7.0, None, 2.5], "yes": [True, False, True]}, text=["code", "yes"])
    assert plain(typed) == {"code": ["7", "", "2.5"], "yes": ["true", "false", "true"]}


def test_types_are_settled_by_all_rows_of_a_csv(tmp_path, small_blocks):
    late = {
        "wide": ("1", "1.5", "number"),
        "sparse": ("", "7", "number"),
        "blank": ("", "word", "text"),
        "when": ("2024-01-01", "2024-01-01T12:00:00", "time"),
        "zoned": ("2024-01-01T00:00:00Z", "2024-01-01T12:00:00+02:00", "time"),
        "clock": ("10:30", "11:00", "number"),
        "yes": ("true", "false", "flag"),
        "id": ("12", "13", "number"),
    }
    early, last, kinds = (",".join(part) for part in zip(*late.values(), strict=True))
    table = csv(tmp_path, "\n".join([",".join(late), *[early] * 500, last]) + "\n")
    assert ",".join(column.kind for column in table.columns.values()) == kinds
    assert table.columns["wide"].values[[0, -1]].tolist() == [1.0, 1.5]
    assert table.columns["clock"].values[-1] == 11 * 3600
    assert table.columns["zoned"].values[-1] == np.datetime64("2024-01-01T10:00")
    assert table.columns["id"].values.dtype == np.int64


def test_most_rows_decide_that_a_column_is_text(tmp_path, small_blocks):
    rows = "ward\n" + "1\n" * 1000 + "north\n" * 1001
    column = csv(tmp_path, "a,ward\n" + "".join(f"0,{w}\n" for w in rows.split()[1:])).columns[
        "ward"
    ]
    assert column.kind == "text" and sorted(column.words.to_pylist()) == ["1", "north"]


def test_few_values_may_be_categories_though_most_are_numbers(tmp_path, small_blocks):
    children = "n,x\n" + "".join(f"{n},1\n" for n in ["0", "1", "2", "3+"] * 700)
    assert csv(tmp_path, children).columns["n"].kind == "text"
    late = "n,x\n" + "0,1\n" * 1500 + "3+,1\n" * 700
    assert csv(tmp_path, late).columns["n"].kind == "text"
    for odd, many in (("3+", 1), ("3+", 9)):  # a single mistake, or one that is rare
        with pytest.raises(DataError, match="column n, row 1,501: '3\\+' is not a number"):
            csv(tmp_path, "n,x\n" + "0,1\n" * 1500 + f"{odd},1\n" * many)
    real = "".join(f"{i / 7:.3f},1\n" for i in range(100)) + "none,1\n" * 50
    with pytest.raises(DataError, match="column n, row 101: 'none' is not a number"):
        csv(tmp_path, "n,x\n" + real)


def test_cells_of_spaces_are_missing(tmp_path):
    spaces = csv(tmp_path, "n,x\n5,1\n  ,2\n 7 ,3\n").columns["n"]
    np.testing.assert_array_equal(spaces.values, [5, np.nan, 7])


def test_a_csv_may_have_other_separators_marks_and_lines(tmp_path):
    assert list(csv(tmp_path, "a;b\n1;2,5\n").columns) == ["a", "b"]
    assert list(csv(tmp_path, '"a;b;c",d\n1,2\n').columns) == ["a;b;c", "d"]
    assert list(csv(tmp_path, b"\xef\xbb\xbfa,b\r\n1,2\r\n").columns) == ["a", "b"]
    table = csv(tmp_path, "a,b\n\n1,NA\n\n2,null\n3,n/a\n4,x\n")
    assert plain(table) == {"a": ["1", "2", "3", "4"], "b": ["", "", "", "x"]}


def test_columns_that_are_no_use_are_left_out_and_said(tmp_path):
    path = tmp_path / "odd.parquet"
    nested = {"l": [[1], [2]], "n": pa.nulls(2), "nan": [np.nan, np.nan], "": [1, 2], "x": [1, 2]}
    parquet.write_table(pa.table({**nested, "blank": ["", " "]}), path)
    table = read_table(path)
    assert list(table.columns) == ["x"]
    nothing = "it has no value at all"
    assert table.left_out.pop("l").startswith("type list<")
    assert table.left_out == {"n": nothing, "nan": nothing, "": "it has no name", "blank": nothing}


def test_arrow_types_become_the_four_kinds():
    day = pa.array([19782, None], pa.date32())
    given_ = {
        "f32": pa.array([0.1, None], pa.float32()),
        "f16": pa.array(np.array([0.5, 1], np.float16)),
        "u8": pa.array([1, 2], pa.uint8()),
        "money": pa.array([decimal.Decimal("1.25"), None]),
        "day": day,
        "ns": pa.array([1, 2], pa.timestamp("ns")),
        "clock": pa.array([3600, None], pa.time32("s")),
        "span": pa.array([1500, None], pa.duration("ms")),
        "category": pa.array(["a", None]).dictionary_encode(),
        "large": pa.array(["a", "b"], pa.large_string()),
        "numbers": pa.array([5.0, 6.0]).dictionary_encode(),
        "iso": pa.array(["2024-02-29", None]),
    }
    table = as_table(given_)
    want = dict.fromkeys(given_, "number")
    want |= dict.fromkeys(["day", "ns", "iso"], "time") | dict.fromkeys(
        ["category", "large"], "text"
    )
    assert {name: column.kind for name, column in table.columns.items()} == want
    assert table.columns["f32"].values.dtype == np.float32 == table.columns["f16"].values.dtype
    assert table.columns["u8"].values.dtype == np.uint8
    np.testing.assert_array_equal(table.columns["span"].values, [1.5, np.nan])
    np.testing.assert_array_equal(table.columns["clock"].values, [3600, np.nan])
    assert (
        table.columns["day"].values[0]
        == table.columns["iso"].values[0]
        == np.datetime64("2024-02-29")
    )
    assert plain(as_table({"iso": given_["iso"]}, text=["iso"]))["iso"] == ["2024-02-29", ""]


def test_a_folder_is_one_table(tmp_path):
    write_table({"a": [1, 2], "s": ["x", "y"], "late": [None, None]}, tmp_path / "2.parquet")
    write_table({"late": ["q"], "s": ["z"], "a": [0.5]}, tmp_path / "1.csv")
    write_table({"a": pa.array([], pa.int64()), "s": [], "late": []}, tmp_path / "0.csv")
    write_table({"a": [3], "s": ["x"], "late": [None]}, tmp_path / "3.arrow")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "notes.txt").write_text("")
    table = read_table(tmp_path)
    assert plain(table) == {
        "a": ["0.5", "1", "2", "3"],
        "s": ["z", "x", "y", "x"],
        "late": ["q", "", "", ""],
    }
    assert table.name == str(tmp_path)
    places = [table.where(row, "a") for row in range(4)]
    want = [("1.csv", 1), ("2.parquet", 1), ("2.parquet", 2), ("3.arrow", 1)]
    assert places == [f"{tmp_path / name}, column a, row {row}" for name, row in want]


def test_arrow_in_the_streaming_form_and_compressed(tmp_path):
    table = pa.table({"a": [1, 2, None]})
    with pa.ipc.new_stream(tmp_path / "s.arrow", table.schema) as writer:
        writer.write_table(table)
    feather.write_feather(table, tmp_path / "c.feather", compression="zstd")
    for name in ("s.arrow", "c.feather"):
        np.testing.assert_array_equal(
            read_table(tmp_path / name).columns["a"].values, [1, 2, np.nan]
        )


def test_only_the_columns_asked_for_are_read(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b,c\n1,bad,3\n2,4,\n3,5,\n4,6,9\n"))
    table = read_table(path, columns=["c", "a"])
    assert list(table.columns) == ["c", "a"]
    np.testing.assert_array_equal(table.columns["c"].values, [3, np.nan, np.nan, 9])


def test_numbers_as_texts_do_not_depend_on_how_they_are_stored():
    tenth = {"f32": np.float32([0.1, 7]), "f64": np.array([0.1, 7.0]), "i": np.array([5, 7])}
    for table in (as_table(tenth), as_table(tenth, text=tenth)):
        words = {
            name: [labels(table, name)[1][code] for code in labels(table, name)[0]]
            for name in table.columns
        }
        assert words == {"f32": ["0.1", "7"], "f64": ["0.1", "7"], "i": ["5", "7"]}


def test_labels_are_words():
    table = as_table({"n": [3, 1, 3], "f": [0.5, None, 7.0], "b": [True, None, False]})
    words = {
        k: [(["", *w][code + 1]) for code in c]
        for k, (c, w) in ((k, labels(table, k)) for k in table.columns)
    }
    assert words == {"n": ["3", "1", "3"], "f": ["0.5", "", "7"], "b": ["true", "", "false"]}
