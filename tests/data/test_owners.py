import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moml.data import by_column
from moml.errors import DataError


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=2), min_size=1, max_size=30))
def test_one_client_a_value_in_the_order_of_appearance(values):
    clients = by_column(values)
    assert clients.names.tolist() == list(dict.fromkeys(values))
    for name, rows in zip(clients.names, clients.rows, strict=True):
        assert rows.tolist() == [i for i, value in enumerate(values) if value == name]


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=30), st.data())
def test_appended_rows_change_no_number(values, data):
    cut = data.draw(st.integers(1, len(values)))
    before, after = by_column(np.array(values[:cut])), by_column(np.array(values))
    assert after.names[: len(before.names)].tolist() == before.names.tolist()


@pytest.mark.parametrize(
    "values",
    [
        np.array([3, 1, 3]),
        np.array([1.5, -2.0, 1.5]),
        np.array(["b", "a", "b"]),
        np.array(["2001-01-02", "2000-01-01", "2001-01-02"], "datetime64[ns]"),
        np.array(["b", 7, "b"], object),
        ("b", 7, "b"),
        [True, False, True],
    ],
)
def test_columns_of_any_type(values):
    clients = by_column(values)
    assert [rows.tolist() for rows in clients.rows] == [[0, 2], [1]]
    assert clients.names[0] == values[0] and clients.names[1] == values[1]


class NA:  # as pandas' own: a comparison with it is no truth
    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("ambiguous")

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    "values, words",
    [
        (["a", None, "b", None], "2 of 4 rows without a name, the first is row 1"),
        (["a", float("nan")], "row 1"),
        (np.array([1.0, 2.0, np.nan]), "row 2"),
        (np.array(["2000-01-01", "NaT"], "datetime64[D]"), "row 1"),
        (["a", " "], "row 1"),
        (["a", NA()], "row 1"),
        (np.ma.array([1, 2, 3], mask=[0, 1, 0]), "row 1"),
        ([], "not empty"),
        (np.zeros((2, 2)), "(2, 2)"),
        ([["a"], ["b"]], "number or a text"),
    ],
)
def test_columns_that_name_no_clients(values, words):
    with pytest.raises(DataError) as caught:
        by_column(values)
    assert words in str(caught.value) and "\n" not in str(caught.value)
