"""The problem `table`: which rows are trained on, which are scored on, and what cannot be."""

import jax.numpy as jnp
import pytest

from moml.config.problems.table import Table, table_tasks
from moml.errors import DataError


def test_the_last_rows_of_a_task_are_scored_on(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,x,y\n" + "".join(f"{i % 2},{i},{10 * i}\n" for i in range(12)))
    train, test = table_tasks(Table(str(path), n=2, task="who"))
    assert (train.least, test.least) == (4, 2)
    ids = jnp.arange(2)
    assert train.full(ids).x[..., 0].tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert test.full(ids).y[..., 0].tolist() == [[80, 100], [90, 110]]
    train, test = table_tasks(Table(str(path), n=2, task="who", tested=1), lambda task: task == 1)
    assert (train.least, test.least) == (5, 1)


@pytest.mark.parametrize(
    "text, words",
    [
        ("who,x,y\n0,1,1\n0,2,1\n0,,1\n", "column x, row 3: there is no value"),
        ("who,x,y\n0,1,1\n0,2,1\n2,1,1\n", "row 3: 2 is not a whole number from 0 to 1"),
        ("who,x,y\n0,1,1\n0,2,0.5\n", "0.5 is not a whole number from 0 to 1"),
        ("who,x,y\n0,1,1\n0,2,1\n", "has 0 rows of task 1"),
        ("who,x,z\n0,1,1\n", "y"),
    ],
)
def test_what_cannot_be_in_one_line(text, words, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=words) as refused:
        table_tasks(Table(str(path), n=2, task="who", classes=2))
    assert "\n" not in str(refused.value)


def test_enough_must_be_left_to_train_on(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,x,y\n0,1,1\n0,2,1\n")
    with pytest.raises(DataError, match=r"tested = 2 leaves nothing of task 0"):
        table_tasks(Table(str(path), n=1, task="who", tested=2))
