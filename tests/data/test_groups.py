"""The tasks of a table: rows by task and in order, held-out tasks that stay where they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moml.data import as_table, learn_columns
from moml.data.table.groups import _place, group, split, weights
from moml.errors import ConfigError, DataError
from moml.tabular.summary import describe


def error_of(call, kind=DataError):
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rows_of(groups):
    return {id_: rows.tolist() for id_, rows in zip(groups.ids, groups.lists(), strict=True)}


def test_tasks_are_in_the_order_of_their_first_rows():
    table = as_table({"u": ["b", "a", "b", "c", "a"]})
    groups = group(table, "u")
    assert rows_of(groups) == {"b": [0, 2], "a": [1, 4], "c": [3]}
    assert groups.sizes.tolist() == [2, 2, 1] and groups.rows(1).tolist() == [1, 4]
    assert groups.among(np.array([2, 0])).tolist() == [0, 2, 3]


@pytest.mark.parametrize("ids", [[7, 3, 7], [7.0, 3.0, 7.0], ["7", "3", "7"]])
def test_ids_are_words_whatever_their_type(ids):
    assert rows_of(group(as_table({"u": ids}), "u")) == {"7": [0, 2], "3": [1]}


def test_ids_may_be_dates_and_truth_values():
    days = np.array(["2024-01-02", "2024-01-01"], "M8[D]")
    assert len(group(as_table({"u": days}), "u").ids) == 2
    assert group(as_table({"u": [True, False, True]}), "u").ids == ("true", "false")


def test_rows_are_in_the_order_of_a_column_and_ties_as_they_were():
    table = as_table({"u": [1, 2, 1, 1, 2], "t": [3.0, 1.0, -1.0, 3.0, 0.5]})
    assert rows_of(group(table, "u", order="t")) == {"1": [2, 0, 3], "2": [4, 1]}
    days = np.array(["2024-03-01", "2024-01-01", "2024-02-01"], "M8[D]")
    table = as_table({"u": ["a", "a", "a"], "t": days})
    assert rows_of(group(table, "u", order="t")) == {"a": [1, 2, 0]}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), min_size=1, max_size=40))
def test_every_row_has_one_task_and_its_place(pairs):
    u, t = (list(column) for column in zip(*pairs, strict=True))
    groups = group(as_table({"u": u, "t": t}), "u", order="t")
    assert sorted(groups.order.tolist()) == list(range(len(u)))
    for id_, rows in rows_of(groups).items():
        assert {u[row] for row in rows} == {int(id_)}
        assert rows == sorted(rows, key=lambda row: (t[row], row))


def test_columns_that_cannot_be_task_or_order():
    table = as_table({"u": ["a", None, "b", None], "t": [1.0, 2.0, None, 4.0], "w": ["x"] * 4})
    found = error_of(lambda: group(table, "u"))
    assert found == "the table, column u, row 2 has no value, but it is the task (2 such rows)"
    found = error_of(lambda: group(table, "w", order="t"))
    assert found == "the table, column t, row 3 has no value, but it is the order"
    found = error_of(lambda: group(table, "w", order="u"))
    assert found == "the table, column u, row 1: 'a' is a text; the order must be numbers or dates"
    assert "has no column id; there are: u, t, w" in error_of(lambda: group(table, "id"))


ids = st.lists(st.text(min_size=1).filter(str.strip), min_size=4, max_size=20, unique=True)


@settings(max_examples=30, deadline=None)
@given(ids, st.integers(0, 2**32), st.floats(0.05, 0.95), st.randoms(use_true_random=False))
def test_a_task_stays_in_its_part(names, seed, share, random):
    base = [name for name in names for _ in range(2)]
    shuffled, more = random.sample(base, len(base)), base + names
    held = [_held(rows, share, seed) for rows in (base, shuffled, more)]
    assert held[0] == held[1] == held[2]
    fewer = _held(base[: 2 * (len(names) // 2)], share, seed)
    for found in (held[0], fewer):  # what the hash says, but that no part is empty
        by_hash = {name for name in found if _place(name, seed) < share}
        if 0 < len(by_hash) < len(found):
            assert {name for name in found if found[name]} == by_hash
        else:
            assert sum(found.values()) in (1, len(found) - 1)


def _held(rows, share, seed):
    groups = group(as_table({"u": rows}, text=["u"]), "u")
    parts = split(groups, share, seed)
    assert sorted([*parts.train, *parts.held]) == list(range(len(groups.ids)))
    return {id_: i in parts.held for i, id_ in enumerate(groups.ids)}


def test_the_share_and_the_seed():
    groups = group(as_table({"u": np.repeat(np.arange(4000), 2)}), "u")
    parts = [set(split(groups, 0.25, seed).held.tolist()) for seed in (0, 1)]
    for part in parts:
        assert abs(len(part) / 4000 - 0.25) < 0.03
    assert abs(len(parts[0] & parts[1]) / 4000 - 0.0625) < 0.02  # seeds know nothing of each other
    assert parts[0] < set(split(groups, 0.5, 0).held.tolist())


def test_small_tasks_train():
    groups = group(as_table({"u": [*range(50), *range(10), *range(10)]}), "u")
    parts = split(groups, 0.5, 0, least=3)
    assert 0 < len(parts.held) < 10 and parts.held.max() < 10
    found = error_of(lambda: split(groups, 0.5, 0, least=4))
    assert found == (
        "a task must have 4 rows to be held out, to adapt on some and predict others; "
        "the largest of 50 tasks has 3"
    )


def test_one_row_a_task_is_a_table_that_cannot_be_scored():
    groups = group(as_table({"u": [1, 2, 3]}), "u")
    assert groups.sizes.tolist() == [1, 1, 1]
    assert "the largest of 3 tasks has 1" in error_of(lambda: split(groups, 0.5, 0))
    single = group(as_table({"u": [1, 1]}), "u")
    assert error_of(lambda: split(single, 0.5, 0)).startswith("there is one task, '1'")


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_shares_that_cannot_be(share):
    groups = group(as_table({"u": [1, 1, 2, 2]}), "u")
    assert "must be between 0 and 1" in error_of(lambda: split(groups, share, 0), ConfigError)


def test_weights():
    table = as_table(
        {"w": [1, 0, 2], "m": [1.0, None, 1.0], "n": [1.0, -2.0, 1.0], "z": [0, 0, 0]}
        | {"i": [1.0, np.inf, 1.0], "t": ["a", "b", "c"]}
    )
    assert weights(table, "w").tolist() == [1, 0, 2] and weights(table, "w").dtype == np.float32
    cases = {
        "m": "the table, column m, row 2 has no value, but it is the weight",
        "n": "the table, column n, row 2: the weight -2.0 is below 0",
        "z": "the table: all weights, column z, are 0",
        "i": "the table, column i, row 2: inf is not finite",
        "t": "the table, column t, row 1: 'a' is not a number",
    }
    for name, words in cases.items():
        assert error_of(lambda name=name: weights(table, name)) == words


def test_what_was_understood_is_said():
    days = np.datetime64("2024-01-01") + np.arange(12) * np.timedelta64(1, "D")
    table = as_table(
        {
            "u": [0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3],
            "x": [1.0, 2.0, None, 4.0, 5.0, 6.0, None, 8.0, 9.0, 1.0, 2.0, 1e9],
            "c": ["a", "b"] * 6,
            "t": days,
            "k": [1] * 12,
            "none": [None] * 12,
            "y": ["yes", "no", "no"] * 4,
        }
    )
    columns = learn_columns(table, "y", exclude=["u"])
    assert describe(columns, table, group(table, "u")) == [
        "the table: 12 rows of 4 tasks, 1 to 5 rows a task, median 3",
        "1 task has one row: it can be adapted to, not scored",
        "target y: 2 classes: no, yes",
        "1 number as input: x",
        "1 category as input: c (2)",
        "1 date as input: t (elapsed, week)",
        "missing values, marked by an indicator; a number or date becomes its training mean: x 2",
        "left out: none (it has no value at all), k (one value in all training tasks)",
    ]


def test_what_training_had_not_is_said():
    table = as_table({"u": [1, 1, 2, 2], "x": [1.0, 2.0, 3.0, None], "c": ["a", "b", "a", "c"]})
    table = table._replace(columns=table.columns | {"y": table.columns["u"]})
    columns = learn_columns(table, "y", exclude=["u"], rows=np.array([0, 1, 2]))
    assert describe(columns, table, group(table, "u"))[4:] == [
        "column x: missing in 1 of 4 rows, never in training; taken as the training mean",
        "column c: a category that training had not in 1 of 4 rows; taken as none",
    ]


def test_values_that_are_held_are_said():
    generator = np.random.default_rng(0)
    x = generator.normal(size=500)
    table = as_table({"u": np.arange(500) // 5, "x": np.append(x[1:], 1e6), "y": x})
    columns = learn_columns(table, "y", exclude=["u"])
    held = [line for line in describe(columns, table, group(table, "u")) if "held" in line]
    assert held == ["values 100 standard deviations from the mean and more, held there: x 1"]
