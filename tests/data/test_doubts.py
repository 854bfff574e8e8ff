"""Warnings of what may not be meant, and rows outside the range of training."""

import numpy as np
import pytest

from moml.data import as_table, learn_columns
from moml.data.table.columns import Columns
from moml.data.table.doubts import doubts, respelled
from moml.data.table.groups import group
from moml.data.table.inputs import span_of

RNG = np.random.default_rng(0)
Y = RNG.normal(size=60)
USERS = np.repeat(np.arange(10), 6)


def said(data, target="y", **more):
    table = as_table({"user": USERS} | data)
    columns = learn_columns(table, target, exclude=["user"], **more)
    return doubts(table, columns, group(table, "user"))


@pytest.mark.parametrize(
    "copy", [Y, 100 * Y + 3, (-0.01 * Y).astype(np.float32), np.where(USERS == 2, np.nan, Y)]
)
def test_a_copy_of_the_target_is_told(copy):
    lines = said({"x": RNG.normal(size=60), "z": copy, "y": Y})
    assert len(lines) == 1 and lines[0].startswith("column z is a copy of the target: y = ")
    assert lines[0].endswith("leave it out by exclude (--exclude z)")


def test_a_close_input_is_no_copy():
    near = Y + 1e-3 * RNG.normal(size=60)
    assert said({"z": near, "c": ["a", "b"] * 30, "y": Y}) == []
    few = np.where(np.arange(60) < 8, Y, np.nan)  # too few rows to say
    assert said({"z": few, "x": near, "y": Y}) == []


def test_a_copy_of_classes_is_told():
    classes = RNG.choice(["no", "yes", "maybe"], 60)
    code = np.select([classes == "no", classes == "yes"], [0, 1], 2)
    (line,) = said({"code": code, "x": code // 2, "w": Y, "y": classes})
    assert line.startswith("column code is a copy of the target: each of its 3 values goes with")


def test_zero_and_one_are_told_unless_they_are_classes():
    data = {"x": Y, "y": (RNG.normal(size=60) > 0).astype(int)}
    (line,) = said(data)
    assert line.startswith("target y has the values 0 and 1 alone and is learned as a number")
    assert said(data, classification=True) == []
    assert said(data | {"y": data["y"] + 1}) == []


def test_ids_in_two_spellings_are_told():
    names = ["Ann", "ann ", "Zoë", "Zoe\u0308", "bob", "Bob  B", "bob b", "eve", "Eve2", "u"]
    table = as_table({"user": np.array(names, object)[USERS], "x": RNG.normal(size=60), "y": Y})
    columns = learn_columns(table, "y", exclude=["user"])
    (line,) = doubts(table, columns, group(table, "user"))
    assert line.startswith("tasks 'Ann' and 'ann ' (and 2 more such pairs) differ in case, spaces")


def test_rows_outside_the_range_of_training_are_counted_by_column():
    days = np.array(["2024-01-01"], "M8[D]") + np.arange(60)
    data = {"x": np.arange(60.0), "day": days, "c": ["a", "b"] * 30, "y": Y}
    columns = learn_columns(as_table(data), "y")
    assert columns.remarks(as_table(data)) == []
    later = as_table(
        data | {"x": np.r_[-5.0, np.full(58, 7.0), np.inf], "day": days + np.timedelta64(58, "D")}
    )
    (line,) = columns.remarks(later)
    assert line == (
        "rows outside the range of training, of 60, by column: "
        "x 2 (0 to 59), day 58 (2023-12-31 to 2024-02-29)"
    )
    again = Columns.from_json(columns.to_json())
    assert again.remarks(later) == [line]


def test_a_range_tells_no_single_value_and_holds_all():
    for values in (RNG.normal(size=50), 1e9 + RNG.normal(size=50), RNG.normal(size=9) / 1e9):
        low, high = span_of(values)
        assert low <= values.min() and high >= values.max()
        assert {low, high}.isdisjoint(values) and high - low < 1.05 * np.ptp(values)
    assert span_of(np.array([2.0, 2.0])) == (2.0, 2.0) and span_of(np.array([np.nan])) == ()


def test_numbers_of_rows_and_other_ids_of_tasks_are_told():
    rows = np.delete(np.arange(70), np.s_[3:13])  # some rows of the file were dropped
    (line,) = said({"row": rows, "x": RNG.normal(size=60), "y": Y})
    assert line == (
        "column row rises from row to row, as row numbers do; if so, leave it out by exclude "
        "(--exclude row)"
    )
    code = np.array(list("jihgfedcba"))[USERS]
    for other in (code, 10 - USERS):
        (line,) = said({"other": other, "x": RNG.normal(size=60), "y": Y})
        assert line.startswith("column other has one value in each task and no two tasks share one")
    income = 1000 * USERS  # too wide for a numbering
    half = USERS // 2
    day = np.tile(np.arange(6), 10)
    assert said({"income": income, "half": half, "day": day, "time": 7 * rows, "y": Y}) == []


def test_ids_known_by_another_spelling_are_told():
    known = {"7": 0, "Ann": 1, "1.50": 2}
    assert respelled(["7", "Ann", "eve", "1.5"], known) == []
    (line,) = respelled(["7.0", "007", " ann", "eve"], known)
    assert line == (
        "task '7.0' is new, but '7' is known (and 2 more such pairs): they differ in case, spaces, "
        "zeros or unicode form only"
    )
