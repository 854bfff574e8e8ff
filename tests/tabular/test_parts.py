"""Arrays in files, intervals, numbers of rows, the choice of who answers where nothing is known."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from moml.algorithms.tabular.intervals import around, bounds, coverage, tasks_lacking
from moml.algorithms.tabular.rivals import learn_rivals
from moml.config.user_function import load_build
from moml.errors import CheckpointError, ConfigError
from moml.storage.arrays import filled, named_leaves, read_arrays, write_arrays, writing
from moml.tabular.rows import split_rows
from moml.tabular.score import _mean

ARRAYS = {
    "a/weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a/bias": np.array([1.5, -2.0]),
    "none": np.zeros((3, 0), np.float32),
    "rows": np.array([3, 4], np.int32),
}


def test_arrays_are_safetensors_both_ways(tmp_path):
    write_arrays(tmp_path / "ours", ARRAYS)
    save_file(ARRAYS, tmp_path / "theirs")
    for found in (load_file(tmp_path / "ours"), read_arrays(tmp_path / "theirs")):
        assert set(found) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


def test_arrays_may_come_in_parts(tmp_path):
    whole = ARRAYS["a/weight"]
    with writing(tmp_path / "file", {"x": whole, "y": whole}) as put:
        for first in (2, 0, 1):
            put("y", first, whole[first : first + 1])
        put("x", 0, whole)
    found = read_arrays(tmp_path / "file")
    np.testing.assert_array_equal(found["x"], whole)
    np.testing.assert_array_equal(found["y"], whole)


@pytest.mark.parametrize("cut", [0, 5, 40, 170])
def test_files_that_are_cut_are_refused(tmp_path, cut):
    write_arrays(tmp_path / "file", ARRAYS)
    data = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(data[:cut])
    with pytest.raises(CheckpointError, match="file is not a safetensors file"):
        read_arrays(tmp_path / "file")


def test_trees_are_filled_by_name():
    tree = {"head": {"bias": 1, "weight": 2}}
    given = {f"mine/{name}": np.array(value) for name, value in named_leaves(tree).items()}
    assert filled(tree, given, "mine") == {"head": {"bias": 1, "weight": 2}}
    with pytest.raises(CheckpointError, match="yours/head/bias is missing"):
        filled(tree, given, "yours")


def test_bounds_are_those_of_the_nearest_number_of_rows():
    rng = np.random.default_rng(0)
    residuals = {k: alone(rng.normal(size=999) / (k + 1)) for k in (0, 1, 5)}
    low, high = around(np.zeros(4), np.array([0, 1, 3, 99]), np.zeros(4), residuals, 0.8)
    assert high[0] > high[1] == high[2] > high[3] > 0 > low[3]
    assert abs(low[0] + 1.28) < 0.15 and abs(high[0] - 1.28) < 0.15
    assert bounds({0: alone(np.ones(8))}, 0.9)[0][:2] == (np.inf, np.inf)
    assert np.isfinite(bounds({0: alone(np.ones(9))}, 0.9)[0]).all()
    assert tasks_lacking({0: alone(np.zeros(8)), 1: alone(np.zeros(30))}, 0.9) == (9, 8)
    assert tasks_lacking({0: alone(np.zeros(9))}, 0.9) is None


def test_coverage_is_that_of_bounds_from_other_tasks():
    rng = np.random.default_rng(0)
    task = rng.permutation(np.repeat(np.arange(23), 4))
    some = np.column_stack([rng.normal(size=92), 3 * task, rng.random(92)])
    shares = []
    for own in range(23):
        rest = some[(task % 5) != own % 5]
        low, high = around(np.zeros(92), np.full(92, 4), some[:, 2], {4: rest}, 0.8)
        inside = (low <= some[:, 0]) & (some[:, 0] <= high)
        shares.append(inside[task == own].mean())
    assert coverage(some, 0.8, parts=5) == pytest.approx(np.mean(shares), rel=1e-12)
    assert 0 < np.mean(shares) < 1
    assert coverage(some, 0.99) is None  # that would need 99 tasks


def test_bounds_are_wider_where_predictions_differ():
    """Residuals as large as the spread: all scores are alike, and so are rows of a larger scale."""
    rng = np.random.default_rng(0)
    spread = np.exp(rng.normal(size=400))
    known = np.column_stack([10 * spread * rng.normal(size=400), np.arange(400), 10 * spread])
    new = np.array([0.0, 10.0, 100.0])
    low, high = around(np.zeros(3), np.zeros(3, int), new, {0: known}, 0.9)
    width = high - low
    assert width[0] < width[1] < width[2]
    variance = bounds({0: known}, 0.9)[0].variance
    np.testing.assert_allclose(width / width[0], np.sqrt(1 + new**2 / variance), rtol=1e-12)


def test_bounds_are_apart_as_residuals_are_skewed():
    rng = np.random.default_rng(0)
    low, high, _ = bounds({0: alone(rng.exponential(size=5000) - 1)}, 0.9)[0]
    low_too, high_too, _ = bounds({0: alone(1 - rng.exponential(size=5000))}, 0.9)[0]
    assert 1.4 < high / low < 2 and 1.4 < low_too / high_too < 2


def alone(residuals):
    """Residuals of rows that are each of a task of its own."""
    return np.column_stack([residuals, np.arange(len(residuals)), np.zeros(len(residuals))])


@pytest.mark.parametrize(("tasks", "rows"), [(39, 1), (39, 10), (9, 10)])
def test_bounds_hold_their_share_of_the_rows_of_new_tasks(tasks, rows):
    """Also where a task's rows are nearly equal: its number of rows is no number of cases."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(2000):
        spread = rng.exponential(size=(tasks + 1, rows))
        off = rng.exponential(size=(tasks + 1, 1)) - 1 + 0.01 * rng.normal(size=spread.shape)
        off = off * np.sqrt(1 + spread**2)
        task = np.repeat(np.arange(tasks), rows)
        known = np.column_stack([off[:-1].ravel(), task, spread[:-1].ravel()])
        low, high = around(0 * off[-1], np.zeros(rows, int), spread[-1], {0: known}, 0.9)
        inside.append((low <= off[-1]) & (off[-1] <= high))
    assert 0.9 - 0.02 < np.mean(inside) < 0.9 + 0.02


def test_large_tasks_count_no_more_than_small_ones():
    others = np.column_stack([np.linspace(-20, 20, 40), np.arange(1, 41), np.zeros(40)])
    once, often = np.array([[9.0, 0.0, 0.0]]), np.tile([[9.0, 0.0, 0.0]], (1000, 1))
    found = [bounds({0: np.concatenate([one, others])}, 0.8)[0] for one in (once, often)]
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_half_of_a_task_is_always_asked_for():
    groups = [np.arange(2), np.arange(2, 12), np.arange(12, 13)]
    rng = np.random.default_rng(0)
    ordered, shuffled = split_rows(groups, 4, True, rng), split_rows(groups, 4, False, rng)
    assert [len(rows) for rows in ordered.support] == [1, 4, 0]
    assert ordered.support[1].tolist() == [2, 3, 4, 5]
    assert sorted(np.concatenate([*shuffled.support, *shuffled.query])) == list(range(13))
    assert shuffled.support[1].tolist() != [2, 3, 4, 5]
    few = split_rows(groups, 4, False, rng, most=3)
    assert [len(rows) for rows in few.query] == [1, 3, 1]


def test_the_penalty_is_the_one_that_training_tasks_like():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = np.repeat(rng.normal(size=(60, 2)), 10, axis=0)
    exact = (x * y).sum(axis=1)
    known = [np.arange(i, i + 5) for i in range(0, 600, 10)]
    asked = [rows + 5 for rows in known]
    assert learn_rivals(x, exact, known, asked, None).penalty == 0.01
    noise = learn_rivals(x, rng.normal(size=600), known, asked, None)
    assert noise.penalty >= 10
    given = noise.answers(x, exact, [known[0], known[0][:0]], np.array([0, 1]), x[:2], None)
    np.testing.assert_allclose(given["per-task"][1], noise.mean[0])
    np.testing.assert_allclose(given["shrunken-mean"][1], noise.mean[0])


@pytest.mark.parametrize(
    "name, said",
    [("nets", "MODULE:FUNCTION"), ("no.such:build", "no.such"), ("json:build", "has no build")],
)
def test_names_of_no_function_are_refused(name, said):
    with pytest.raises(ConfigError, match=said):
        load_build(name)


def test_rows_weigh_in_the_scores_and_tasks_in_their_spread():
    errors, weigh = np.array([4.0, 16.0, 1.0, 9.0]), np.array([3.0, 1.0, 0.0, 0.0])
    scored = _mean("rmse", errors, weigh, np.array([0, 0, 1, 1]))
    assert scored.pop("quantiles") == [7.0**0.5] * 5
    assert scored == {"mean": 7.0**0.5, "std": 0.0, "tasks": 1, "rows": 4}
    scored = _mean("accuracy", errors, np.ones(4), np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(scored.pop("quantiles"), [5.5, 6.25, 7.5, 8.75, 9.5])
    assert scored == {"mean": 7.5, "std": 2.5, "tasks": 2, "rows": 4}
