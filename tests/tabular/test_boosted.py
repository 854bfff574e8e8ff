"""LightGBM in the table of scores: it learns from other tasks, and adapts by features alone."""

import sys

import numpy as np
import pytest

from moml.tabular.fitting.boosted import boosted

TASKS, ROWS = 12, 24
HOW = {"known": (0, 2), "ordered": True, "weights": None, "seed": 0}


def levels(classes=None):
    """Tasks whose targets are a level of their own and noise; the input says which task it is."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(TASKS), ROWS)
    y = 3 * rng.permutation(np.linspace(-1, 1, TASKS))[who] + 0.1 * rng.normal(size=len(who))
    groups = np.split(np.arange(len(who)), TASKS)
    y = y if classes is None else np.digitize(y, np.linspace(-3, 3, classes + 1)[1:-1])
    return who[:, None].astype(float), y, groups, who


def answers(model, given, k, classes=None):
    """For all rows, given the first k rows of their task."""
    x, y, groups, who = given
    return model.answers(x, y, [rows[:k] for rows in groups], who, x, classes)["lightgbm"]


def test_a_fold_has_not_seen_its_tasks_but_adapts_to_their_rows():
    given = levels()
    x, y, groups, who = given
    folds = np.split(np.random.default_rng(1).permutation(TASKS), 3)
    made = boosted(x, y, groups, folds, classes=None, **HOW)
    spoilt = boosted(x, np.where(np.isin(who, folds[0]), -y, y), groups, folds, classes=None, **HOW)
    trees = lambda model: model.trees.model_to_string()
    assert [trees(a) == trees(b) for a, b in zip(made, spoilt, strict=True)] == [True, False, False]
    off = np.zeros(2)
    for model, mine in zip(made, folds, strict=True):
        own = np.isin(who, mine)
        off += [((answers(model, given, k) - y) ** 2)[own].sum() for k in (0, 2)]
    assert off[1] < 0.5 * off[0]


def test_the_same_seed_gives_the_same_answers():
    given = levels()
    folds = [np.arange(4)]
    [one], [other] = (boosted(*given[:3], folds, classes=None, **HOW) for _ in range(2))
    [third] = boosted(*given[:3], folds, classes=None, **HOW | {"seed": 1})
    np.testing.assert_array_equal(answers(one, given, 2), answers(other, given, 2))
    assert (answers(one, given, 2) != answers(third, given, 2)).any()


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_have_probabilities_and_one_may_be_missing(classes):
    given = levels(classes)
    [model] = boosted(*given[:3], [np.arange(4)], classes=classes, **HOW)
    p = answers(model, given, 2, classes)
    assert p.shape == (TASKS * ROWS, classes)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == given[1]).mean() > 0.7
    x, y, groups, _ = given
    [model] = boosted(x, 0 * y, groups, [np.arange(4)], classes=classes, **HOW)
    assert (answers(model, given, 2, classes).argmax(axis=1) == 0).all()


def test_rows_of_weight_zero_are_not_learned_from():
    x, y, groups, _ = given = levels()
    half = np.arange(len(y)) % 2
    spoilt = np.where(half, y, 100.0)
    weights = half.astype(float)
    [model] = boosted(x, spoilt, groups, [np.arange(4)], classes=None, **HOW | {"weights": weights})
    assert np.abs(answers(model, given, 0)).max() < 10


def test_without_the_package_there_is_none(monkeypatch):
    given = levels()
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert boosted(*given[:3], [np.arange(4)], classes=None, **HOW) == []
