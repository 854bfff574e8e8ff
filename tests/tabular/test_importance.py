"""Importance of inputs, by a model that is known."""

import numpy as np

from moml.algorithms.tabular.members import Shape
from moml.data import as_table, learn_columns
from moml.data.table.groups import group
from moml.models.table import Knots
from moml.tabular.model import TableModel
from moml.tabular.rows import Rows
from moml.tabular.summary import importance


class Known(TableModel):
    """Predicts a plus the sum of the list, with a bias: the mean that the support lacks."""

    def personal(self, x, y, groups):
        of = lambda rows: y[rows].mean() - self.plain(x)[rows].mean() if len(rows) else 0.0
        return np.array([of(rows) for rows in groups])

    def answers(self, personal, which, x):
        return self.plain(x) + personal[which]

    def plain(self, x):
        return x[:, 0] + x[:, 2] - x[:, 3]


def test_inputs_that_the_model_uses_rank_first_and_others_change_nothing():
    rng = np.random.default_rng(0)
    user, emb = np.repeat(np.arange(40), 6), rng.normal(size=(240, 2))
    a, unused = rng.normal(size=240), rng.normal(size=240)
    y = a + 0.3 * (emb[:, 0] - emb[:, 1]) + rng.normal(size=40)[user]
    table = as_table({"user": user, "a": a, "unused": unused, "emb": emb, "y": y})
    columns, groups = learn_columns(table, "y", exclude=["user"]), group(table, "user")
    x = columns.encode(table)
    wanted = x[:, 0] + x[:, 2] - x[:, 3] + np.linspace(-1, 1, 40)[user]
    empty = np.zeros((0,), np.float32)
    model = Known(Shape(4, None, True), Knots(empty.astype(int), empty, empty), {}, 3)
    given = Rows(groups, x, wanted, None, [])
    ranks = importance(columns, [(model, np.arange(40))], given, seed=0)
    found = {row["input"]: row["permuted"] for row in ranks}
    assert [row["input"] for row in ranks] == ["emb", "a", "unused"]  # the list is one input
    base = ranks[0]["score"]
    np.testing.assert_allclose([base, found["unused"]], 0, atol=1e-6)
    # of a permuted: x' - x + (mean of 3 such) has the variance 2 + 2/3, nearly
    scale = columns.target.scale.std
    np.testing.assert_allclose(found["a"] / scale, np.sqrt(2 + 2 / 3), rtol=0.15)
    np.testing.assert_array_equal(given.x, columns.encode(table))  # unchanged
    assert importance(columns._replace(inputs=()), [(model, np.arange(2))], given, seed=0) == []


def test_each_model_is_asked_for_its_own_tasks_alone():
    """One model is right, the other answers zero: the score is that of both halves of the tasks."""

    class Zero(Known):
        def plain(self, x):
            return 0 * x[:, 0]

        def personal(self, x, y, groups):
            return np.zeros(len(groups))

    rng = np.random.default_rng(0)
    user, a = np.repeat(np.arange(40), 6), rng.normal(size=240)
    table = as_table({"user": user, "a": a, "b": a, "c": a, "d": 0 * a + user, "y": a})
    columns, groups = learn_columns(table, "y", exclude=["user"]), group(table, "user")
    x = columns.encode(table)
    shape, empty = Shape(4, None, True), np.zeros((0,), np.float32)
    right, zero = (kind(shape, Knots(empty.astype(int), empty, empty), {}, 3)
                   for kind in (Known, Zero))  # fmt: skip
    y = x[:, 0] + x[:, 2] - x[:, 3]
    given = Rows(groups, x, y, None, [])
    halves = [(right, np.arange(0, 40, 2)), (zero, np.arange(1, 40, 2))]
    found = importance(columns, halves, given, seed=0)[0]["score"] / columns.target.scale.std
    odd = np.concatenate([groups.rows(i)[3:] for i in range(1, 40, 2)])
    np.testing.assert_allclose(found, np.sqrt(np.mean(y[odd] ** 2) / 2), rtol=1e-6)
