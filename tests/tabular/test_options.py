"""Options of `train_table` that cannot be, as they are refused."""

import numpy as np
import pandas as pd
import pytest

from moml.data.table.frame import as_table
from moml.errors import ConfigError, DataError
from moml.tabular.options import check_options

GOOD = {"columns": {"task": "u", "target": "y", "order": None, "weight": None}, "lists": {},
        "counts": {"shots": None, "members": 3}, "seed": 0}  # fmt: skip


@pytest.mark.parametrize(
    "given, said",
    [
        ({"columns": {"task": 0, "target": "y"}}, "task must be the name of a column, a text; got"),
        ({"columns": {"task": "y", "target": "y"}}, r"task and target must be different columns;"),
        ({"lists": {"exclude": "age"}}, "exclude must be a list of names; got 'age'"),
        ({"lists": {"kinds": ["pooled"]}}, "kinds must be some of summary, head, steps; got"),
        ({"lists": {"kinds": []}}, r"kinds must be some of summary, head, steps; got \[\]"),
        ({"counts": {"members": 0}}, "members must be a whole number from 1; got 0"),
        ({"seed": -1}, "seed must be a whole number from 0; got -1"),
    ],
)
def test_options_that_cannot_be(given, said):
    check_options(**GOOD)
    with pytest.raises(ConfigError, match=said):
        check_options(**(GOOD | given))


def test_a_frame_of_mixed_types_is_refused_in_a_sentence():
    frame = pd.DataFrame({"x": np.array([1, "a"], object)})
    with pytest.raises(DataError, match=r"read: Conversion failed for column x .*; Could not"):
        as_table(frame)
