"""Numbers and missing values as people write them."""

import numpy as np
import pyarrow as pa
import pytest

from moml.data import as_table, learn_columns, read_table
from moml.data.table.cells import Cells, cells, guessed
from moml.data.table.frame import as_categories
from moml.errors import ConfigError, DataError


def form_of(*words):
    found = guessed(pa.array(words), np.ones(len(words), int))
    return None if found is None else found[0].options


@pytest.mark.parametrize(
    ("words", "form", "values"),
    [
        (["1,013,441", "12", "-9,999.5"], Cells(thousands=","), [1013441, 12, -9999.5]),
        (["4,50", ",5", "1e3"], Cells(decimal=","), [4.5, 0.5, 1000]),
        (["1.234,5", "2.345.678"], Cells(",", "."), [1234.5, 2345678]),
        (["1 000", "1\u202f000", "1\u00a0000"], Cells(thousands=" "), [1000] * 3),
        (["$4.50", "-$4.50", "$-4.50", "\u22124.50"], Cells(units=("$",)), [4.5, -4.5, -4.5, -4.5]),
        ([" 45%", "45 % ", "45"], Cells(units=("%",)), [45] * 3),
        (["12 kg", "EUR 3"], Cells(units=("kg", "EUR")), [12, 3]),
    ],
)
def test_numbers_are_read_by_their_form(words, form, values):
    found, known = form.numbers(pa.array(words))
    assert known.all()
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize(
    ("word", "form"),
    [
        ("1,01", Cells(thousands=",")),
        ("0,123", Cells(thousands=",")),
        ("1,2345", Cells(thousands=",")),
        ("1.5", Cells(decimal=",")),
        ("1.5", Cells(",", ".")),
        ("$4.50", Cells()),
        ("$$4", Cells(units=("$",))),
        ("abc", Cells(",", ".", ("$",))),
    ],
)
def test_other_forms_are_no_numbers(word, form):
    values, known = form.numbers(pa.array([word]))
    assert not known.any() and np.isnan(values).all()


def test_the_form_of_most_cells_is_found():
    assert form_of("1,013,441", "12") == "--thousands ','"
    assert form_of("$4.50", "$1,200.00") == "--thousands ',' --units '$'"
    assert form_of("45%", "50 %", "n/a") == "--units '%'"
    assert form_of("4,50", "0,1") == "--decimal ','"
    assert form_of("0,123", "0,456") == "--decimal ','"
    assert form_of("1.234.567", "4,5") == "--decimal ',' --thousands '.'"
    assert form_of("€ 12,50", "€ 3,00") == "--decimal ',' --units '€'"


@pytest.mark.parametrize(
    "words",
    ["1 2.5", "A12 B13", "A1 A2", "2024-01-01", "10:30", "1/2", "10.0.0.1", "#12 #13", "a b $4"],
)
def test_codes_dates_and_plain_numbers_have_no_form(words):
    assert form_of(*words.split()) is None


def test_a_target_of_written_numbers_is_refused_with_the_option_that_reads_it():
    table = as_table({"x": np.arange(40.0) % 7, "y": [f"${i}.50" for i in range(40)]})
    said = "row 1: '\\$0.50' is a text, no number; --units '\\$' reads 40 of 40 values as numbers"
    with pytest.raises(DataError, match=said):
        learn_columns(table, "y")
    assert len(learn_columns(table, "y", classification=True).target.classes) == 40


def test_a_left_out_input_of_written_numbers_says_so():
    table = as_table({"x": [f"{i},5" for i in range(40)], "z": [0, 1] * 20, "y": range(40)})
    why = learn_columns(table, "y").left_out["x"]
    assert why == "40 different texts in 40 rows; --decimal ',' reads 40 of 40 values as numbers"


def test_a_csv_is_read_by_its_form(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id;price;part;n;c\n1;1.234,5;1.000;3;x\n2;-;2.500;4;y\n3;2,5;3.000;5;x\n")
    table = read_table(path, cells=Cells(",", ".", na=("-",)))
    price, part, n = (table.column(name) for name in ("price", "part", "n"))
    np.testing.assert_array_equal(price.values, [1234.5, np.nan, 2.5])
    np.testing.assert_array_equal(part.values, [1000, 2500, 3000])  # no floats of arrow's
    assert part.values.dtype.kind == "i" and n.values.tolist() == [3, 4, 5]
    assert table.column("c").kind == "text"


def test_a_wrong_cell_is_named_with_what_would_read_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{i},2\n" for i in range(40)) + "-,3\n-,4\n")
    with pytest.raises(DataError, match=r"row 41: '-' is not a number, .* add --na '-'"):
        read_table(path)
    assert read_table(path, cells=Cells(na=("-",))).column("a").missing.sum() == 2
    path.write_text("a,b\n" + "".join(f"{900 + i},2\n" for i in range(40)) + '"1,013",3\n')
    with pytest.raises(DataError, match="; --thousands ',' reads it as a number"):
        read_table(path)
    assert read_table(path, cells=Cells(thousands=",")).column("a").values[-1] == 1013


def test_texts_of_a_frame_are_read_only_if_asked_for():
    data = {"id": ["1", "2"], "x": ["1,5", "2,5"], "n": [1, -999], "c": ["?", "b"]}
    assert as_table(data).column("x").kind == "text"
    table = as_table(data, text=["id"], cells=Cells(",", na=("-999", "?")))
    assert table.column("id").kind == "text" and table.column("x").values.tolist() == [1.5, 2.5]
    assert table.column("n").missing.tolist() == [False, True]
    assert table.column("c").missing.tolist() == [True, False]
    only_na = as_table(data, cells=Cells(na=("?",)))
    assert only_na.column("x").kind == "text"  # numbers in texts need a form


@pytest.mark.parametrize(
    "given",
    [
        *({"decimal": ";"}, {"thousands": "."}, {"thousands": "ab"}, {"thousands": "1"}),
        *({"na": "x"}, {"decimal": ",", "thousands": ","}, {"units": ("3",)}, {"units": "$"}),
    ],
)
def test_forms_are_checked(given):
    with pytest.raises(ConfigError):
        cells(**given)


def test_columns_become_categories():
    table = as_table({"zip": [10115, 80331], "c": ["a", "b"], "b": [True, False]})
    made = as_categories(table, ["zip", "c", "b"])
    assert [made.column(name).kind for name in made.columns] == ["text"] * 3
    assert made.column("zip").word(1) == "80331" and made.column("b").word(0) == "true"
    with pytest.raises(DataError, match="no column zap"):
        as_categories(table, ["zap"])
