"""PFLlib's splits, and the leaderboard from the command to its rows."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.data.images.catalog import SETS
from moml.data.split.pfllib import pfllib_split
from moml.errors import ConfigError
from moml.models import accuracy, cross_entropy, mlp
from moml.paper.leaderboard import cells, data, methods
from moml.paper.leaderboard.scores import scorer
from tests.support.program import call, refused

# PFLlib's README prints these of MNIST, `dir`
TRAIN = [1972, 374, 1222, 1905, 1437, 4641, 942, 951, 2700, 3004, 2337, 2829, 2709, 1600, 4297,
         4086, 2721, 4239, 3949, 4577]  # fmt: skip
TEST = [658, 125, 408, 636, 480, 1548, 314, 318, 900, 1002, 779, 943, 904, 534, 1433, 1362, 907,
        1414, 1317, 1526]  # fmt: skip


def mnist_labels():
    parts = SETS["mnist"].counts
    return np.concatenate([np.repeat(np.arange(10), parts[part]) for part in ("train", "test")])


def test_the_clients_of_mnist_are_those_that_pfllib_prints():
    y = mnist_labels()
    shares = pfllib_split(y, "dir")
    assert [len(rows) for rows in shares.train] == TRAIN
    assert [len(rows) for rows in shares.test] == TEST
    first = np.bincount(y[np.concatenate([shares.train[0], shares.test[0]])], minlength=10)
    assert first.tolist() == [140, 890, 0, 0, 1, 319, 0, 29, 1067, 184]
    assert np.bincount(y[np.append(shares.train[16], shares.test[16])]).tolist() == [3628]


@pytest.mark.parametrize("kind", ["dir", "pat"])
def test_every_image_has_one_owner(kind):
    y = np.repeat(np.arange(100), 60)
    shares = pfllib_split(y, kind, classes=10)
    rows = np.concatenate([*shares.train, *shares.test])
    assert sorted(rows) == list(range(len(y)))
    for train, test in zip(*shares, strict=True):
        assert len(train) == int(0.75 * (len(train) + len(test)))
        if kind == "pat":
            assert len(np.unique(y[np.append(train, test)])) == 10


def test_a_split_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="split must be dir or pat; got 'iid'"):
        pfllib_split(np.repeat(np.arange(10), 10), "iid")


def run_cli(capsys, *words):
    """What the command prints."""
    code, out, error = call(capsys, "reproduce", "leaderboard", *words)
    assert code == 0, error
    return out


@pytest.fixture
def small(monkeypatch):
    """Twenty clients of coloured noise, by a small network."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 120)
    x = random.integers(0, 60, (len(y), 8, 8, 1)) + 19 * y[:, None, None, None]
    net = mlp(64, 16, 10)
    monkeypatch.setattr(data, "cnn", lambda channels, classes, side: net)
    made = data.of_images(x.astype(np.uint8), y, 10, "dir")
    monkeypatch.setattr(data, "benchmark", lambda dataset, split, folder, *, new: made)
    return made


def test_scores_are_those_of_a_loop_over_clients(small):
    chosen = methods.composed("ditto", small.loss)
    found = {}

    def look(info):
        keys = jax.random.key(7)[None]
        found["scores"] = jax.device_get(scorer(chosen, small)(info.carry.state, info.hyper, keys))
        found["state"] = jax.device_get(info.carry.state)

    grid = [methods.settings_of("ditto", chosen)[0] | {"eta": 0.05}]
    cells.sweep(
        chosen, small.loss, small.net.init, small.train, seeds=1, grid=grid, iterations=2, chunk=2,
        callback=look,
    )  # fmt: skip
    right = accuracy(small.net.predict)
    state, scores = found["state"], found["scores"]["test"]
    one = lambda tree, *at: jax.tree.map(lambda x: x[at], tree)
    for i in range(20):
        own = one(small.test.full(jnp.array([i], jnp.int32)), 0)
        np.testing.assert_allclose(scores["global"][0, i], right(one(state.meta, 0), own))
        np.testing.assert_allclose(scores["kept"][0, i], right(one(state.memory.u, 0, i), own))
    assert (scores["kept"] != scores["global"]).any()
    assert (scores["tuned"] != scores["global"]).any()


def test_strict_chooses_on_one_half_and_scores_the_other():
    means = np.array([[1.0, 9.0, 2.0, 3.0], [5.0, 4.0, 6.0, 7.0]])  # [points, settings * seeds]
    lost = np.zeros(4, bool)
    members, points = cells.pick(means, lost, 2, one_round=True)
    assert members.tolist() == [2, 3] and points.tolist() == [1, 1]
    lost[2] = True  # a setting that loses a seed comes last
    members, points = cells.pick(means, lost, 2, one_round=True)
    assert members.tolist() == [0, 1] and points.tolist() == [0, 0]


def test_every_setting_is_listed_at_its_best_round():
    settings = [{"eta": eta, "seed": seed} for eta in (0.1, 0.2) for seed in range(2)]
    lost = np.array([False, False, False, True])
    chosen_by = np.array([[1.0, 3.0, 9.0, 9.0], [4.0, 2.0, 9.0, 9.0]])
    test = np.array([[7.0, 7.0, 9.0, 9.0], [5.0, 6.0, 9.0, 9.0]])
    first, second = cells.tried(settings, lost, chosen_by, test, [10, 20])
    assert first == {"eta": 0.1, "chosen_by": 3.0, "test": 5.5, "round": 20}
    assert second["chosen_by"] is None and second["test"] is None


def test_a_command_leaves_rows_and_goes_on_where_it_stopped(small, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["--dataset", "mnist", "--split", "dir", "--out", str(out)]
    command += ["--rounds", "4", "--score-every", "2", "--seeds", "2"]
    said = run_cli(capsys, *command, "--protocol", "pfllib", "--methods", "fedavg", "local")
    rows = json.loads((out / "rows.json").read_text())
    kinds = {(row["method"], row["setting"]["model"]) for row in rows}
    assert kinds == {("fedavg", "global"), ("fedavg", "tuned"), ("local", "kept")}
    assert {row["table"] for row in rows} == {"leaderboard"}
    assert all(len(row["values"]) == row["seeds"] == 2 for row in rows)
    assert (out / "leaderboard.png").exists()
    assert "better alone" in said and "fine-tuned" in said
    words = ("--protocol", "pfllib", "--methods", "fedavg", "local", "fedper")
    assert run_cli(capsys, *command, *words).count("done before") == 2
    more = json.loads((out / "rows.json").read_text())
    assert more[: len(rows)] == rows and len(more) > len(rows)
    said = run_cli(capsys, *command, "--protocol", "strict", "--methods", "ditto")
    assert "Settings tried" in said
    last = json.loads((out / "rows.json").read_text())[-1]
    assert last["protocol"] == "strict" and last["setting"]["prox"] in (0.001, 0.01, 0.1)


def test_new_clients_take_no_part_and_are_scored_after_an_epoch(
    small, monkeypatch, tmp_path, capsys
):
    x, y = np.asarray(small.train.data.x), np.asarray(small.train.data.y)
    made = data.of_images(x, y, 10, "dir", new=True)
    assert (made.train.n, made.own.n, made.test.n) == (16, 4, 4)
    rows = lambda tasks: set(np.asarray(tasks.data.order).tolist())
    assert not rows(made.train) & (rows(made.own) | rows(made.test))
    monkeypatch.setattr(data, "benchmark", lambda dataset, split, folder, *, new: made)
    words = ["--dataset", "mnist", "--split", "dir", "--rounds", "2", "--score-every", "2"]
    words += ["--new-clients", "--out", str(tmp_path / "out"), "--methods", "fedper", "local"]
    run_cli(capsys, *words)
    found = json.loads((tmp_path / "out" / "rows.json").read_text())
    assert {(r["method"], r["setting"]["model"]) for r in found} == {
        ("fedper", "global"), ("fedper", "tuned")
    }  # fmt: skip
    assert all(len(r["clients"][0]) == 4 for r in found if "clients" in r)
    assert all(r["setting"]["new"] and r["setting"]["settings"] == 3 for r in found)


def test_slices_of_like_clients_give_the_same_models(small):
    """What `at_once` changes is the order of clients, not what they learn."""
    found = []
    for size in (20, 5):
        chosen = methods.composed("fedper", small.loss, at_once=size)
        run = cells.sweep(
            chosen, small.loss, small.net.init, small.train, seeds=1,
            grid=methods.settings_of("fedper", chosen), iterations=2, chunk=2,
        )  # fmt: skip
        found.append(np.asarray(run.meta.body[0].weight))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_rows_of_an_earlier_command_make_the_tables_again(small, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--dataset", "mnist", "--split", "dir", "--rounds", "2", "--score-every", "2"]
    for protocol in ("pfllib", "strict"):
        more = ["--protocol", protocol, "--methods", "fedavg", "local", "--out", str(out)]
        run_cli(capsys, *words, *more)
    again = tmp_path / "again"
    said = run_cli(capsys, "--rows", out / "rows.json", "--out", again)
    assert "mnist dir, strict" in said
    assert (again / "leaderboard-ranks.png").exists() and (again / "leaderboard.png").exists()


def test_a_method_that_there_is_not_is_refused(tmp_path, capsys):
    words = ("--methods", "fedavgg", "--out", tmp_path)
    assert "methods must be one of" in refused(capsys, "reproduce", "leaderboard", *words)


def test_every_row_composes():
    net = mlp(4, 3, 2)
    for name in methods.ROWS:
        more = {"features": net.features} if name == "feddbe" else {}
        chosen = methods.composed(name, cross_entropy(net.predict), **more)
        for count in methods.ETAS:
            tried = methods.settings_of(name, chosen, count)
            assert len({tuple(row.items()) for row in tried}) == len(tried) == count
            assert all(set(row) <= set(chosen.hyper._asdict()) for row in tried)
