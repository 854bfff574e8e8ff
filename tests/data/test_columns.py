"""Columns learned on training rows: features, targets, what is left out, JSON."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moml.data import as_table, learn_columns, read_table
from moml.data.table.columns import Columns
from moml.data.table.inputs import CLIP, scale_of
from moml.errors import DataError

N = 40
Y = np.linspace(-1, 2, N)
DAYS = np.datetime64("2023-01-02") + np.arange(N) * np.timedelta64(1, "D")


def features(columns, table, rows=None):
    return dict(zip(columns.features, columns.encode(table, rows).T.tolist(), strict=True))


def error_of(call):
    with pytest.raises(DataError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_numbers_are_standardised_on_the_training_rows():
    x = np.arange(N) ** 1.5
    table, train = as_table({"x": x, "y": Y}), np.arange(0, N, 3)
    columns = learn_columns(table, "y", rows=train)
    want = (x - x[train].mean()) / x[train].std()
    np.testing.assert_allclose(columns.encode(table)[:, 0], want, rtol=1e-6)
    np.testing.assert_allclose(columns.encode(table, train)[:, 0], want[train], rtol=1e-6)
    target = columns.target(table)
    np.testing.assert_allclose(target, (Y - Y[train].mean()) / Y[train].std(), rtol=1e-5)
    assert target.dtype == np.float32 and columns.encode(table).dtype == np.float32
    np.testing.assert_allclose(columns.target.unscale(target), Y, atol=1e-6)


def test_a_missing_value_is_the_mean_and_is_marked():
    given_ = {"x": [1.0, None, 3.0], "z": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0]}
    table = as_table(given_)
    columns = learn_columns(table, "y")
    assert columns.features == ["x", "x missing", "z"]
    np.testing.assert_allclose(columns.encode(table)[:, :2], [[-1, 0], [0, 1], [1, 0]])
    assert columns.remarks(table) == []
    later = as_table({"x": [2.0, None], "z": [None, 2.0]})
    np.testing.assert_allclose(columns.encode(later), [[0, 0, 0], [0, 1, 0]])
    assert columns.remarks(later) == [
        "column z: missing in 1 of 2 rows, never in training; taken as the training mean"
    ]
    blank = as_table({"x": [1.0], "z": [None]})  # a column without any value is left out there
    np.testing.assert_allclose(columns.encode(blank), [[-1, 0, 0]])


def test_what_tells_nothing_is_left_out_and_said():
    table = as_table(
        {
            "same": np.full(N, 3.5),
            "large": np.full(N, 1e9) + 1e-7,
            "word": ["a"] * N,
            "day": np.full(N, DAYS[0]),
            "own": [f"row {i}" for i in range(N)],
            "none": [None] * N,
            "late": [None] * 30 + [1.0] * 10,
            "x": Y**2,
            "partly": [7.0] * 39 + [None],
            "y": Y,
        }
    )
    columns = learn_columns(table, "y", rows=np.r_[0:29, 39])
    assert columns.features == ["late missing", "x", "partly missing"]
    assert columns.left_out == {
        "none": "it has no value at all",
        "same": "one value in all training tasks",
        "large": "one value in all training tasks",
        "word": "one text in all training tasks",
        "day": "one date in all training tasks",
        "own": "30 different texts in 30 rows",
    }
    columns = learn_columns(table, "y", rows=np.arange(29))
    assert columns.left_out["late"] == "no value in the training tasks"
    found = error_of(lambda: learn_columns(table, "y", inputs=["same"]))
    assert found.endswith("no input column is left (same: one value in all training tasks)")


def test_a_column_that_counts_the_rows_is_no_input():
    table = as_table({"": range(N), "rownames": range(1, N + 1), "x": Y**2, "y": Y})
    columns = learn_columns(table, "y")
    assert columns.left_out == {"": "it has no name", "rownames": "it counts the rows"}
    assert learn_columns(table, "y", inputs=["rownames"]).names == ["rownames"]


def test_the_index_of_a_pandas_frame_in_a_file_is_no_input(tmp_path):
    frame = pd.DataFrame({"x": Y**2, "y": Y})[np.arange(N) % 3 > 0]
    frame.to_parquet(tmp_path / "some.parquet")
    columns = learn_columns(read_table(tmp_path / "some.parquet"), "y")
    assert columns.names == ["x"]
    assert columns.left_out == {"__index_level_0__": "it is the index of a pandas frame"}


def test_outliers_neither_flatten_the_rest_nor_overflow():
    generator = np.random.default_rng(0)
    x = generator.normal(size=1000)
    plain = scale_of(x)
    wild = np.append(x, [1e6, -1e300, np.inf, np.nan])
    table = as_table({"x": wild, "y": generator.normal(size=1004)})
    columns = learn_columns(table, "y")
    encoded = columns.encode(table)[:, 0]
    assert np.isfinite(encoded).all() and encoded.min() == -CLIP and encoded.max() == CLIP
    assert encoded[:1000].std() > 0.3 > abs(encoded[:1000].mean())
    assert plain.std == x.std() and plain.mean == pytest.approx(x.mean())
    far = as_table({"x": [1e6 * plain.std, -1e308, np.inf, -np.inf]})
    later = learn_columns(as_table({"x": x, "y": x}), "y").encode(far)
    np.testing.assert_allclose(later[:, 0], [CLIP, -CLIP, CLIP, -CLIP])


def test_one_wild_value_in_a_column_of_one_value():
    x = np.append(np.zeros(300), [1.7e308, -1.7e308])
    table = as_table({"x": x, "y": np.arange(302)})
    assert np.isfinite(learn_columns(table, "y").encode(table)).all()


def test_the_scale_of_large_numbers_that_differ_little():
    x = 1e15 + np.arange(8.0)
    scale = scale_of(x)
    assert scale.std == pytest.approx(np.arange(8).std())
    np.testing.assert_allclose(scale(x), scale_of(np.arange(8.0))(np.arange(8.0)), rtol=1e-6)


def test_categories_are_the_most_frequent_and_the_others():
    words = [f"w{i:02}" for i in range(40) for _ in range(50 - i)]
    table = as_table({"w": words, "y": np.arange(len(words)) % 7})
    columns = learn_columns(table, "y")
    assert columns.features == [f"w=w{i:02}" for i in range(32)] + ["w other"]
    x = columns.encode(table)
    np.testing.assert_array_equal(x.sum(axis=1), 1)
    later = as_table({"w": ["w01", "w39", "new", None]})
    found = columns.encode(later)
    assert np.argmax(found[:3], axis=1).tolist() == [1, 32, 32] and found[3].sum() == 0
    assert columns.remarks(later) == [
        "column w: missing in 1 of 4 rows, never in training; taken as no category"
    ]


def test_an_unseen_category_is_no_error():
    columns = learn_columns(as_table({"w": ["b", "a", "b", None], "y": [1, 2, 3, 4]}), "y")
    assert columns.features == ["w=b", "w=a", "w missing"]
    later = as_table({"w": ["new", "a", None]})
    assert columns.encode(later).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 1]]
    said = "column w: a category that training had not in 1 of 3 rows; taken as none"
    assert columns.remarks(later) == [said]


def test_truth_values_are_numbers():
    table = as_table({"b": [True, False, None, True], "y": [1, 2, 3, 4]})
    columns = learn_columns(table, "y")
    assert columns.features == ["b", "b missing"]
    np.testing.assert_allclose(
        columns.encode(table)[:, 0], [0.5**0.5, -(2**0.5), 0, 0.5**0.5], rtol=1e-6
    )
    np.testing.assert_array_equal(
        columns.encode(as_table({"b": [1, 0]})), columns.encode(as_table({"b": [True, False]}))
    )


HOURS = np.datetime64("2023-01-02T00:00") + np.arange(24 * 3) * np.timedelta64(1, "h")
YEARS = np.arange("2000", "2020", dtype="M8[Y]").astype("M8[D]")
MONTHS = np.arange("2020-01", "2023-01", dtype="M8[M]").astype("M8[D]")


@pytest.mark.parametrize(
    "times, parts",
    [(DAYS, ["week"]), (HOURS, ["day"]), (YEARS, []), (MONTHS, ["year"]), (DAYS[:5], [])],
    ids=["days", "hours", "years", "months", "five days"],
)
def test_dates_are_elapsed_time_and_the_cycles_that_they_go_round(times, parts):
    table = as_table({"t": times, "y": np.arange(len(times))})
    columns = learn_columns(table, "y")
    assert columns.inputs[0].cycles == tuple(parts)
    assert columns.features == ["t"] + [f"t {part} {f}" for part in parts for f in ("sin", "cos")]
    x = columns.encode(table)
    elapsed = (times - times[0]) / np.timedelta64(1, "s")
    np.testing.assert_allclose(x[:, 0], (elapsed - elapsed.mean()) / elapsed.std(), atol=1e-5)
    assert np.abs(x[:, 1:]).max(initial=0) <= 1


def test_a_week_later_is_the_same_day_of_the_week():
    table = as_table({"t": DAYS, "y": Y})
    x = features(learn_columns(table, "y"), table)
    for part in ("t week sin", "t week cos"):
        np.testing.assert_allclose(x[part][:-7], x[part][7:], atol=1e-5)
        assert np.ptp(x[part][:7]) > 1.5


def test_dates_may_be_missing_or_far_away():
    given_ = {"t": [*DAYS.tolist(), None, np.datetime64("9999-12-31").item()], "y": [*Y, 0, 0]}
    table = as_table(given_)
    columns = learn_columns(table, "y")
    assert columns.features == ["t", "t week sin", "t week cos", "t missing"]
    x = columns.encode(table)
    assert np.isfinite(x).all() and x[-2].tolist() == [0] * (x.shape[1] - 1) + [1]
    assert x[-1, 0] > 5 and np.ptp(x[:N, 0]) > 0.01


def test_texts_and_truth_values_mean_classes():
    table = as_table({"x": [1, 2, 3], "y": ["dog", "cat", "dog"], "b": [True, False, True]})
    columns = learn_columns(table, "y")
    assert columns.target.classes == ("cat", "dog") and columns.target(table).tolist() == [1, 0, 1]
    assert columns.target(table).dtype == np.int32 and columns.text == ["y"]
    flags = learn_columns(table, "b").target
    assert flags.classes == ("false", "true") and flags(table).tolist() == [1, 0, 1]
    assert flags(as_table({"b": [0, 1]})).tolist() == [0, 1]


def test_numbers_are_classes_if_asked_for():
    table = as_table({"x": [1, 2, 3, 4], "y": [10, 9, 10, 9.0]})
    assert learn_columns(table, "y").target.classes == ()
    columns = learn_columns(table, "y", classification=True)
    assert columns.target.classes == ("9", "10") and columns.target(table).tolist() == [1, 0, 1, 0]


def test_classes_that_only_held_out_tasks_have_are_known():
    table = as_table({"x": [1, 2, 3], "y": ["a", "b", "c"]})
    columns = learn_columns(table, "y", rows=np.array([0, 1]))
    assert columns.target.classes == ("a", "b", "c")


X = {"x": [1.0, 2.0, 3.0, 4.0]}
TARGETS = {
    "one value": ([2.0, 2.0, 2.0, 2.0], {}, "the table: the target y has one value"),
    "one class": (["a", "a", "a", "a"], {}, "the table: the target y has one class, 'a'"),
    "one class, asked": ([1, 1, 1, 1], {"classification": True}, "the target y has one class, '1'"),
    "a date": (DAYS[:4], {}, "the target y is a date"),
    "infinite": ([1.0, 2.0, np.inf, 3.0], {}, "the table, column y, row 3: inf is not finite"),
    "all missing": ([None] * 4, {}, "column y cannot be used: it has no value at all"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_targets_that_cannot_be(case):
    values, options, words = TARGETS[case]
    assert words in error_of(lambda: learn_columns(as_table(X | {"y": values}), "y", **options))


def test_targets_of_many_classes_or_of_numbers_as_text():
    many = as_table({"x": np.arange(1200), "y": [f"c{i}" for i in range(1200)]})
    assert "has 1,200 classes; at most 1,000" in error_of(lambda: learn_columns(many, "y"))
    texts = [f"{i / 7:.3f}" for i in range(60)]
    texts[17] = "abc"
    numbers = as_table({"x": np.arange(60), "y": texts})
    found = error_of(lambda: learn_columns(numbers, "y"))
    assert found.startswith(
        "the table, column y, row 18: 'abc' is a text, no number; --decimal '.' reads 59 of 60"
    )


def test_rows_without_a_target_are_refused_or_marked():
    table = as_table({"x": [1, 2, 3, 4], "y": [1.0, None, 3.0, None], "c": ["a", None, "b", "a"]})
    columns = learn_columns(table, "y")
    found = error_of(lambda: columns.target(table))
    assert found.startswith("the table, column y, row 2 has no value, nor have 1 others;")
    assert np.isfinite(columns.target(table, np.array([0, 2]))).all()
    assert np.isnan(columns.target(table, missing=True)).tolist() == [False, True, False, True]
    assert learn_columns(table, "c").target(table, missing=True).tolist() == [0, -1, 1, 0]


def test_tables_that_do_not_fit_what_was_learned():
    columns = learn_columns(as_table({"x": [1.0, 2.0], "c": ["a", "b"], "y": ["p", "q"]}), "y")
    no = lambda given_: error_of(lambda: columns.encode(as_table(given_)))
    assert no({"c": ["a"]}) == "the table has no column x; there are: c"
    assert no({"x": [None, "abc"], "c": ["a", "b"]}) == (
        "the table, column x, row 2: 'abc' is not a number, as all were in training"
    )
    assert "'2.5' is not a text" in no({"x": [1.0], "c": [2.5]})
    found = error_of(lambda: columns.target(as_table({"y": ["p", "new"]})))
    assert found == "the table, column y, row 2: 'new' is none of the classes p, q"


def test_inputs_and_columns_with_another_use():
    table = as_table({"user": [1, 1, 2], "a": [1, 2, 3], "b": [3, 1, 2], "y": [1, 2, 3]})
    assert learn_columns(table, "y", exclude=["user"]).names == ["a", "b"]
    assert learn_columns(table, "y", inputs=["b"]).names == ["b"]
    assert "has no column z" in error_of(lambda: learn_columns(table, "y", inputs=["z"]))
    assert "column y cannot be an input" in error_of(
        lambda: learn_columns(table, "y", inputs=["y"])
    )


def test_dates_of_another_form_are_refused_by_name():
    table = as_table({"x": [1, 2], "day": ["31/12/2024", "1/2/2025"], "y": [1, 2]})
    found = error_of(lambda: learn_columns(table, "y"))
    assert found.startswith("the table, column day, row 1: '31/12/2024' looks like a date")
    assert learn_columns(table, "y", exclude=["day"]).names == ["x"]


def test_a_small_file_is_read_as_training_read_it(tmp_path):
    columns = learn_columns(as_table({"ward": ["3", "ICU"], "x": [1.0, 2.0], "y": [1, 2]}), "y")
    path = tmp_path / "one.csv"
    path.write_text("ward,x\n3,1\n")
    table = read_table(path, columns=columns.names, text=columns.text)
    assert columns.encode(table).tolist() == [[1, 0, -1]]
    path.write_text("ward,x\n,2\n")
    table = read_table(path, columns=columns.names, text=columns.text)
    assert columns.encode(table).tolist() == [[0, 0, 1]]
    said = "column ward: missing in 1 of 1 rows, never in training; taken as no category"
    assert columns.remarks(table) == [said]


word = st.sampled_from(["a", "b", "c", "d", None])
tables = st.integers(3, 30).flatmap(
    lambda n: st.fixed_dictionaries(
        {
            "x": st.lists(st.none() | st.floats(-1e6, 1e6), min_size=n, max_size=n),
            "k": st.lists(st.integers(-3, 3), min_size=n, max_size=n),
            "w": st.lists(word, min_size=n, max_size=n),
            "b": st.lists(st.sampled_from([True, False, None]), min_size=n, max_size=n),
            "t": st.lists(st.none() | st.sampled_from(DAYS.tolist()), min_size=n, max_size=n),
            "y": st.just(list(range(n))),
        }
    )
)


@settings(max_examples=60, deadline=None)
@given(tables, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(given_, random):
    try:
        columns = learn_columns(as_table(given_), "y")
    except DataError as error:
        assert "no input column is left" in str(error)
        return
    n = len(given_["y"])
    order = random.sample(range(n), n)
    shuffled = as_table({name: [values[i] for i in order] for name, values in given_.items()})
    x = columns.encode(as_table(given_))
    assert x.shape == (n, len(columns.features)) and np.isfinite(x).all()
    np.testing.assert_array_equal(columns.encode(shuffled), x[order])
    again = learn_columns(shuffled, "y")
    assert again.features == columns.features and again.left_out == columns.left_out
    np.testing.assert_allclose(again.encode(shuffled), x[order], atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(tables, st.booleans())
def test_json_there_and_back(given_, classification):
    table = as_table(given_)
    try:
        columns = learn_columns(table, "y", classification=classification)
    except DataError:
        return
    again = Columns.from_json(json.loads(json.dumps(columns.to_json())))
    assert again == columns
    np.testing.assert_array_equal(again.encode(table), columns.encode(table))
    np.testing.assert_array_equal(again.target(table), columns.target(table))


def test_json_of_another_format_is_refused():
    columns = learn_columns(as_table({"x": [1, 2], "y": [1, 2]}), "y")
    found = error_of(lambda: Columns.from_json(columns.to_json() | {"format": 99}))
    assert found == "columns must be of format 1; got 99"
