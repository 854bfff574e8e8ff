"""Rare categories by statistics of the target: by hand, without leaks, and as served."""

import json

import numpy as np
import pytest

from moml.data import as_table, learn_columns
from moml.data.table.columns import Columns
from moml.data.table.groups import group
from moml.data.table.inputs import LEVELS
from moml.data.table.levels import FOLDS, cross_fitted, with_levels
from moml.serving.forget import _remove
from moml.serving.moml_serve import _encode


def made(tasks=150, rows=8, levels=100, effect=1.0, seed=0, classes=False):
    """A table of users in cities that have an effect; the columns and the groups."""
    rng = np.random.default_rng(seed)
    user, city = np.repeat(np.arange(tasks), rows), rng.integers(0, levels, tasks * rows)
    y = effect * rng.normal(size=levels)[city] + rng.normal(size=tasks)[user]
    y = y + 0.5 * rng.normal(size=len(y))
    y = np.digitize(y, [-0.5, 0.5]) if classes else y
    names = np.char.add("c", city.astype(str))
    table = as_table({"user": user, "city": names, "x": rng.normal(size=len(y)), "y": y})
    groups = group(table, "user")
    columns = learn_columns(table, "y", exclude=["user"], classification=classes)
    return table, groups, columns, np.arange(table.rows)


def by_hand(table, groups, columns, mine):
    """The values of the levels for the rows in `mine`, by groups of other folds, in loops."""
    city, y = table.column("city"), columns.target(table).astype(float)
    known = set(columns.inputs[0].words)
    cells = {}
    for i, rows in enumerate(groups.lists()):
        for row in rows:
            cells.setdefault((city.word(int(row)), i), []).append(y[row])
    cells = {key: np.mean(values) for key, values in cells.items() if key[0] not in known}
    by_level = {}
    for (word, i), value in cells.items():
        by_level.setdefault(word, []).append((i, value))
    several = [[v for _, v in some] for some in by_level.values() if len(some) > 1]
    inside = sum(np.sum((np.array(v) - np.mean(v)) ** 2) for v in several)
    inside /= sum(len(v) - 1 for v in several)
    between = np.var([np.mean(v) for v in several])
    k = inside / (between - inside * np.mean([1 / len(v) for v in several]))
    owner = {int(row): i for i, rows in enumerate(groups.lists()) for row in rows}
    found = []
    for row in mine:
        some = by_level.get(city.word(int(row)), [])
        others = [v for i, v in some if i % FOLDS != owner[int(row)] % FOLDS]
        kept = len(some) > 1 and others
        found.append(sum(others) / (len(others) + k) if kept else 0.0)
    return np.array(found)


def test_values_are_those_by_hand():
    table, groups, columns, rows = made()
    with_them = with_levels(columns, table, groups, rows)
    assert with_them.features[LEVELS] == "city mean" and not with_them.inputs[0].other
    x = cross_fitted(with_them, table, groups, rows, with_them.encode(table))
    wanted = by_hand(table, groups, columns, range(200))
    np.testing.assert_allclose(x[:200, LEVELS], wanted, rtol=1e-5, atol=1e-6)
    assert np.count_nonzero(wanted) > 50
    again = Columns.from_json(with_them.to_json())
    np.testing.assert_array_equal(again.encode(table), with_them.encode(table))


def test_rows_that_training_had_not_get_the_values_of_all_groups():
    table, groups, columns, _ = made()
    seen = groups.among(np.arange(100))
    with_them = with_levels(columns, table, groups, seen)
    plain = with_them.encode(table)
    x = cross_fitted(with_them, table, groups, seen, plain.copy())
    held = np.setdiff1d(np.arange(table.rows), seen)
    np.testing.assert_array_equal(x[held], plain[held])
    assert (x[seen, LEVELS] != plain[seen, LEVELS]).any()
    np.testing.assert_array_equal(np.delete(x, LEVELS, 1), np.delete(plain, LEVELS, 1))


def test_no_row_has_a_part_in_its_own_input():
    # levels of two rows each: their mean over all rows tells much of a target that is noise
    rng = np.random.default_rng(3)
    n, tasks = 1200, 300
    city, user = rng.permutation(np.arange(n) // 2), np.repeat(np.arange(tasks), n // tasks)
    y = rng.normal(size=n) + 0.8 * (city % 2)  # an effect, so that there are statistics
    data = {"user": user, "city": np.char.add("c", city.astype(str)), "y": y}
    table = as_table(data)
    groups, rows = group(table, "user"), np.arange(n)
    columns = with_levels(learn_columns(table, "y", exclude=["user"]), table, groups, rows)
    noise = y - 0.8 * (city % 2)
    rare = ~np.isin(data["city"], columns.inputs[0].words)
    plain = columns.encode(table)[:, LEVELS]
    fitted = cross_fitted(columns, table, groups, rows, columns.encode(table))[:, LEVELS]
    related = lambda values: abs(np.corrcoef(values[rare], noise[rare])[0, 1])
    assert related(plain) > 0.5 and related(fitted) < 0.1


def test_levels_that_tell_nothing_share_an_indicator():
    table, groups, columns, rows = made(effect=0.0, seed=0)
    same = with_levels(columns, table, groups, rows)
    assert same == columns and same.features[LEVELS] == "city other"
    table, groups, columns, rows = made(effect=0.0, seed=1)  # they seem to differ, by chance
    assert 0 < np.abs(with_levels(columns, table, groups, rows).inputs[0].means).max() < 0.3
    alone = as_table({"user": range(60), "city": [f"c{i // 2}" for i in range(60)], "y": range(60)})
    plain = learn_columns(alone, "y", exclude=["user"])
    assert with_levels(plain, alone, group(alone, "user"), np.arange(60)) == plain


@pytest.mark.parametrize("classes", [False, True])
def test_they_are_served_alike(classes):
    table, groups, columns, rows = made(classes=classes)
    columns = with_levels(columns, table, groups, rows)
    assert sum("mean" in name for name in columns.features) == (3 if classes else 1)
    city = [table.column("city").word(i) for i in range(300)] + ["never seen", None]
    (given,) = [part for part in columns.to_json()["inputs"] if part["name"] == "city"]
    served = np.stack(_encode(given, city), axis=1)
    asked = as_table({"city": city, "x": np.zeros(302)})
    np.testing.assert_allclose(columns.encode(asked)[:, : served.shape[1]], served, rtol=1e-6)
    assert not columns.encode(asked)[300:, LEVELS].any()


def test_a_level_can_be_forgotten():
    table, groups, columns, rows = made()
    about = with_levels(columns, table, groups, rows).to_json()
    about = json.loads(json.dumps(about))
    level = about["inputs"][0]["levels"][0]
    assert _remove(about, [f"city={level}"]) == {f"city={level}"}
    assert level not in json.dumps(about).replace('"', " ").replace(",", " ").split()
