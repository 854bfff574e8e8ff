"""Which of many like cases every run of the tests has; the others have the marker `slow`."""

from collections.abc import Iterable
from typing import Any

import pytest

# One method of each kind of rounds: what clients keep, what the server keeps and sends, how a
# client steps. tests/runtime/test_rounds.py has all of them.
ROUNDS = {
    "fedavg",
    "localmoml",
    "pfedme",
    "scaffold",
    "fedadam",
    "ditto",
    "fedrep",
    "apfl",
    "feddbe",
}


def often(cases: Iterable[Any], some: Iterable[str]) -> list[Any]:
    """Cases of `pytest.mark.parametrize`, tuples or names; slow where the name is not in `some`."""
    made, some = [], set(some)
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        made.append(pytest.param(*values, marks=[] if values[0] in some else pytest.mark.slow))
    return made
