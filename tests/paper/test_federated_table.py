import json
import math
from dataclasses import fields, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.federated.rounds import rounds
from moml.cli import run
from moml.data.images.arrays import by_class
from moml.models import cross_entropy
from moml.paper.cells import printed
from moml.paper.federated import data as federated_data
from moml.paper.federated import table as federated_table
from moml.paper.federated.cells import (
    GRIDS,
    PROTOCOLS,
    Cell,
    cells,
    compose,
    decays_twice,
    grid_of,
    rounds_in,
    with_quirks,
)
from moml.paper.federated.data import drawn, half, problem_of, reading, scorer, scores_of
from moml.paper.federated.released import bare_mlp, builder, stale_pfedme
from moml.paper.federated.table import picked, run_cell
from moml.runs.client_scores import figures
from moml.tasks.sampler import draw, fetch
from moml.training.rows import means_to_choose_by
from moml.types import Batch, Hyper, Task, TaskBatch
from tests.support.program import refused

HYPER = jax.tree.map(jnp.asarray, Hyper(eta=0.001, beta=0.7, alpha=0.003))
FIELDS = {
    "table", "dataset", "setting", "method", "protocol", "metric", "mean", "std", "values",
    "seeds", "lost", "paper_mean", "paper_std", "samples", "iterations", "seconds",
}  # fmt: skip


def made(split, each, seed, classes=10):
    """Images [rows, 4, 4, 1] whose classes differ in which pixels are bright."""
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), each)
    bright = np.random.default_rng(0).integers(0, 160, (classes, 4, 4, 1))
    x = (bright[y] + generator.integers(0, 96, (len(y), 4, 4, 1))).astype(np.uint8)
    return by_class(x, y, [str(k) for k in range(classes)], split)


@pytest.fixture(scope="module")
def images():
    return made("train", 3000, 1), made("test", 1000, 2)


@pytest.fixture(scope="module")
def problem(images):
    return problem_of(*images, "cifar10", PROTOCOLS["released"])


def plain_round(cell, problem, visit, meta, scale):
    """The same round without the span: the library's update on the draw, given H times."""
    p = cell.switches
    update = builder(cell.method, p.prox, p.prox_steps)(problem.loss)
    chosen = compose(cell, problem.loss)
    made = rounds(lambda params, hyper: params, update, chosen.algorithm.needs)
    again = lambda part: jax.tree.map(lambda x: jnp.stack([x] * cell.h, axis=1), part)
    task = visit.task
    restart = task.restart
    if restart is not None:
        restart = restart._replace(x=scale * restart.x)
    whole = Task(again(task.support), again(task.query), None, restart)
    return jax.jit(made.step)(made.init(meta, HYPER), visit._replace(task=whole), HYPER)


def one_round(chosen, visit, meta):
    return jax.jit(chosen.algorithm.step)(chosen.algorithm.init(meta, HYPER), visit, HYPER)


def a_visit(chosen):
    """Samples such as this method asks for; the same ones for all methods."""
    need, generator = chosen.algorithm.needs, np.random.default_rng(5)
    x = jnp.asarray(generator.random((need.tasks, 20, 4, 4, 1)))
    y = jnp.asarray(generator.integers(0, 10, (need.tasks, 20)), jnp.int32)
    part = lambda start, size: Batch(x[:, start : start + size], y[:, start : start + size])
    task = Task(
        support=part(0, need.support),
        query=part(need.support, need.query) if need.query else None,
        restart=part(15, need.restart) if need.restart else None,
    )
    return TaskBatch(jnp.arange(need.tasks, dtype=jnp.int32), task)


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        ("per-fedavg", "released"),
        ("localmoml", "released"),
        ("localmoml", "released-scaled"),
        ("pfedme", "released"),
        ("fedavg", "released"),
    ],
)
def test_a_round_on_the_span_is_the_round(problem, name, protocol):
    cell = Cell(protocol, "cifar10", name, 3, 4)
    chosen = with_quirks(compose(cell, problem.loss), cell)
    visit, meta = a_visit(chosen), problem.net.init(jax.random.key(1))
    state, info = one_round(chosen, visit, meta)
    scale = 255.0 if protocol == "released" else 1.0
    wanted, told = plain_round(cell, problem, visit, meta, scale)
    for mine, theirs in zip(state.meta, wanted.meta, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-11)
    np.testing.assert_allclose(info.loss, told.loss, rtol=1e-10)
    np.testing.assert_allclose(info.norm, told.norm, rtol=1e-8)


def test_the_slip_moves_localmoml_and_nothing_else(problem):
    ends = {}
    for protocol in ("released", "released-scaled"):
        for name in ("per-fedavg", "localmoml"):
            cell = Cell(protocol, "cifar10", name, 3, 4)
            chosen = with_quirks(compose(cell, problem.loss), cell)
            visit, meta = a_visit(chosen), problem.net.init(jax.random.key(1))
            state, _ = one_round(chosen, visit, meta)
            ends[protocol, name] = state.meta[0]
    right, wrong = ends["released-scaled", "localmoml"], ends["released", "localmoml"]
    np.testing.assert_array_equal(
        ends["released", "per-fedavg"], ends["released-scaled", "per-fedavg"]
    )
    assert float(jnp.abs(right - wrong).max()) > 1e-5


def test_released_scaled_puts_one_thing_right():
    one, other = PROTOCOLS["released"], PROTOCOLS["released-scaled"]
    differ = [f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)]
    assert differ == ["unscaled_restart"]


def test_what_a_round_draws(problem):
    """Released: one draw of 5 and 10 for all steps; the others: a new draw at each."""
    sizes = {}
    for protocol in PROTOCOLS:
        cell = Cell(protocol, "cifar10", "localmoml", 4, 8)
        chosen = with_quirks(compose(cell, problem.loss), cell)
        needs = chosen.algorithm.needs
        one = lambda key, needs=needs: draw(key, needs, problem.train).task
        task = jax.eval_shape(one, jax.random.key(0))
        sizes[protocol] = [None if part is None else part.shape for part in task]
        assert chosen.algorithm.iterations == 4
    assert sizes["released"] == [(8, 5), (8, 10), None, (8, 5)]
    assert sizes["released"] == sizes["released-scaled"]
    assert sizes["paper"] == [(8, 4, 5), (8, 4, 5), (8, 4, 5), (8, 5)]
    assert sizes["strict"] == [(8, 4, 5), (8, 4, 5), None, (8, 5)]


@pytest.mark.parametrize("clients", [4, 20])
def test_stratified_clients(problem, clients):
    cell = Cell("released", "cifar10", "per-fedavg", 4, clients)
    needs = compose(cell, problem.loss).algorithm.needs
    several = jax.jit(jax.vmap(lambda key: draw(key, needs, problem.train).ids))
    ids = np.asarray(several(jax.random.split(jax.random.key(0), 40)))
    group = np.searchsorted([13, 26, 38], ids, side="right")  # 13, 13, 12 and 12 clients
    for g in range(4):
        assert ((group == g).sum(axis=1) == clients // 4).all()
    assert all(len(set(row.tolist())) == clients for row in ids)
    if clients == 20:
        assert set(ids.ravel().tolist()) == set(range(50))
    loose = Cell("strict", "cifar10", "per-fedavg", 4, clients)
    assert compose(loose, problem.loss).algorithm.needs.groups == 1


def test_pfedme_with_a_stale_gradient_has_a_closed_form():
    """theta_R - w = -(g / lambda) (1 - (1 - alpha lambda)^R), so w' = w - eta g (1 - ...)."""
    loss = lambda w, x: jnp.sum((w - x) ** 4)
    w, x, prox, steps = jnp.array([1.0, -2.0]), jnp.array([0.5, 0.3]), 20.0, 7
    task = Task(support=x[None])
    hyper = jax.tree.map(jnp.asarray, Hyper(eta=0.02, beta=1.0, alpha=0.01))
    end = stale_pfedme(loss, prox, steps)(w, (), task, None, hyper).meta
    wanted = w - 0.02 * jax.grad(loss)(w, x) * (1 - (1 - 0.01 * prox) ** steps)
    np.testing.assert_allclose(end, wanted, rtol=1e-12)


def test_the_released_network():
    net = bare_mlp(300, 40, 40, 10)
    layers = net.init(jax.random.key(0))
    assert [layer.shape for layer in layers] == [(300, 40), (40, 40), (40, 10)]
    assert float(layers[0].std()) == pytest.approx(np.sqrt(2 / 340), rel=0.05)
    elu = lambda z: np.where(z > 0, z, np.exp(z) - 1)
    x = np.random.default_rng(0).normal(size=(3, 300))
    first, second, third = map(np.asarray, layers)
    by_hand = elu(elu(x @ first) @ second) @ third
    np.testing.assert_allclose(net.predict(layers, jnp.asarray(x)), by_hand, rtol=1e-10)


def test_fine_tuning_by_hand(problem):
    """Two clients, three steps: the accuracy before and after each, on the span and off it."""
    rows = problem.test.rows[:1] + problem.test.rows[-1:]
    given = drawn(rows, 1, few=True)
    meta = jax.vmap(problem.net.init)(jax.random.split(jax.random.key(0), 1))
    loss, net = cross_entropy(problem.net.predict), problem.net
    on_span, plain = (
        scorer(problem, problem.test, given, PROTOCOLS[name], steps=3)(meta, jnp.array([0.5]))
        for name in ("released", "strict")
    )
    by_hand, grad = np.zeros((1, 2, 4)), jax.jit(jax.grad(loss))
    for i in range(2):
        p = net.init(jax.random.split(jax.random.key(0), 1)[0])
        s, q = given.support[0, i], given.query[0, i]
        x, y = np.asarray(problem.test.x) / 255.0, np.asarray(problem.test.y)
        few = Batch(jnp.asarray(x[s]), jnp.asarray(y[s]))
        for t in range(4):
            logits = net.predict(p, jnp.asarray(x[q]))
            by_hand[0, i, t] = 100 * np.mean(np.argmax(np.asarray(logits), 1) == y[q])
            p = jax.tree.map(lambda w, g: w - 0.5 * g, p, grad(p, few))
    assert len(np.unique(by_hand)) > 2
    np.testing.assert_allclose(on_span, by_hand)
    np.testing.assert_allclose(plain, by_hand)
    mean, last = reading(by_hand, None), reading(by_hand, 3)
    np.testing.assert_allclose(mean.after, by_hand[..., 1:].mean(-1))
    np.testing.assert_array_equal(last.after, by_hand[..., 3])
    np.testing.assert_array_equal(mean.before, by_hand[..., 0])


def scored(after):
    """Curves of members with two clients, that score `after` at every step and one less before."""
    after = np.asarray(after, float)
    return np.stack([after - 1] + [after] * 10, axis=-1)


def test_the_best_round_of_each_seed_or_the_last():
    points = [{"seen": scored([[1, 3], [9, 9]])}, {"seen": scored([[5, 1], [0, 2]])}]
    nobody = np.zeros(2, bool)
    best = picked(points, nobody, 2, PROTOCOLS["released"]).of(points, "seen")
    plain = replace(PROTOCOLS["released"], best_round=False, mean_of_steps=False)
    last = picked(points, nobody, 2, plain).of(points, "seen")
    np.testing.assert_array_equal(best.after, [[5, 1], [9, 9]])
    np.testing.assert_array_equal(best.before, [[4, 0], [8, 8]])
    np.testing.assert_array_equal(last.after, [[5, 1], [0, 2]])


def test_a_tuned_choice_never_looks_at_what_is_reported():
    """Three settings of two seeds, two rounds: the tuning half decides; a lost setting is out."""
    tuning = [np.repeat([[0], [0], [1], [1], [9], [9]], 2, axis=1) + base for base in (1, 2)]
    seen = [scored(np.arange(12).reshape(6, 2) * sign) for sign in (1, -1)]
    points = [{"tuning": scored(t), "seen": s} for t, s in zip(tuning, seen, strict=True)]
    points[1]["tuning"][:, :, 4] += 0.5  # four steps are best there
    lost = np.array([False, False, False, False, False, True])
    pick = picked(points, lost, 2, PROTOCOLS["strict"])
    assert pick.members.tolist() == [2, 3] and pick.points.tolist() == [1, 1]
    assert pick.steps == 4
    np.testing.assert_array_equal(pick.of(points, "seen").after, seen[1][2:4, :, 4])


def test_the_paper_tunes_step_sizes_alone():
    """Its last round and all ten steps, though an earlier round and one step score higher."""
    tuning = [scored(np.repeat([[90], [90], [1], [1]], 2, axis=1)) for _ in range(2)]
    tuning[1] = scored(np.repeat([[2], [2], [5], [5]], 2, axis=1))
    tuning[1][:2, :, 1] = 80
    points = [{"tuning": each, "seen": each} for each in tuning]
    pick = picked(points, np.zeros(4, bool), 2, PROTOCOLS["paper"])
    assert (pick.members.tolist(), pick.points.tolist(), pick.steps) == ([2, 3], [1, 1], 10)
    p = PROTOCOLS["paper"]
    assert not p.decays and p.tuned and not p.stops and not p.few_queries
    grid = grid_of(Cell("paper", "mnist", "localmoml", 4, 4))
    assert grid == {
        "alpha": [0.001], "eta": [0.1, 0.01, 0.001], "beta": [0.1, 0.3, 0.5, 0.7, 0.9],
    }  # fmt: skip
    assert grid_of(Cell("released", "mnist", "localmoml", 4, 4)) == {
        "alpha": [0.001], "eta": [0.001], "beta": [0.9],
    }  # fmt: skip


def test_where_every_setting_lost_a_seed_those_that_are_left_decide():
    """Three settings of two seeds: the first lost one, the second both, the third one."""
    tuning = [scored(np.repeat([[5], [99], [99], [99], [99], [7]], 2, axis=1))] * 2
    tuning[1] = tuning[1] + 1
    lost = np.array([False, True, True, True, True, False])
    pick = picked([{"tuning": each} for each in tuning], lost, 2, PROTOCOLS["strict"])
    assert pick.members.tolist() == [4, 5] and pick.points.tolist() == [1, 1]
    assert means_to_choose_by(np.ones(2), np.ones(2, bool)) == -np.inf


def test_the_worst_tenth_and_the_spread():
    after = np.array([[*range(20)]], float)
    found = figures(after / 2, after)
    assert {name: float(value[0]) for name, value in found.items()} == {
        "accuracy": 9.5, "accuracy_before": 4.75, "worst_decile": 0.5,
        "spread": pytest.approx(after.std()),
    }  # fmt: skip


def test_what_is_scored_was_not_adapted_on(problem):
    rows = problem.test.rows
    few = drawn(rows, 2, few=True)
    assert few.mask.all() and few.query.shape == (2, 50, 10)
    assert not np.array_equal(few.support[0], few.support[1])
    tuning, final = half(rows, 0), half(rows, 1)
    rest = drawn(final, 1, few=False)
    for i in range(50):
        support, query = rest.support[0, i], rest.query[0, i][rest.mask[0, i]]
        assert sorted([*support, *query]) == sorted(final[i])
        assert not set(final[i]) & set(tuning[i])
        assert not set(few.support[0, i]) & set(few.query[0, i])


def test_clients_that_never_took_part(images):
    """Their images are nobody's training images."""
    strict = problem_of(*images, "cifar10", PROTOCOLS["strict"])
    assert strict.unseen is not None and len(strict.unseen.rows) == 50
    own = strict.train.full(jnp.arange(50))
    key = lambda x: {row.tobytes() for row in np.asarray(x, np.float64).reshape(-1, 16)}
    assert not key(np.asarray(strict.unseen.x) / 255.0) & key(own.x)


def test_mnist_has_more_images_in_the_released_code(images):
    more, usual = (problem_of(*made_images, "mnist", PROTOCOLS[name])
                   for made_images, name in (((made("train", 5200, 1), images[1]), "released"),
                                             (images, "strict")))  # fmt: skip
    assert more.train.least == 168 // 2 + 2 * 168
    assert usual.train.least == 68 // 2 + 2 * 68


def test_printed_figures_and_rounds():
    row = {"table": "federated", "metric": "accuracy"}
    found = lambda data, name, h, clients, k=5: printed(
        row | {"dataset": data, "method": name, "setting": {"h": h, "clients": clients, "k": k}}
    )
    assert found("cifar10", "localmoml", 4, 4) == (66.16, 1.03)
    assert found("cifar100", "pfedme", 10, 20) == (50.95, 1.19)
    assert found("cifar10", "fedavg", 4, 4) == (None, None)
    assert rounds_in(Cell("paper", "mnist", "pfedme", 10, 4), 10_000) == 1_000
    assert rounds_in(Cell("released", "mnist", "pfedme", 10, 4), 10_000) == 10_000
    assert rounds_in(Cell("released", "mnist", "local", 10, 4), 10_000) == 800
    assert rounds_in(Cell("released", "mnist", "untrained", 10, 4), 10_000) == 0
    assert found("cifar10", "localmoml", 4, 4, k=1) == (None, None)
    eta = lambda t: float(decays_twice(400)(HYPER, jnp.array(t)).eta)
    found = [eta(t) / 0.001 for t in (0, 199, 200, 299, 300)]
    assert found == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_controls(problem):
    """A net that has seen nothing, and one that each client trains on its own images alone."""
    found = {}
    for name in ("untrained", "local"):
        cell = Cell("released", "cifar10", name, 2, 25)
        test = scores_of(problem, cell.switches, 2)
        outcome = run_cell(cell, problem, test, seeds=2, budget=400, progress=False)
        assert outcome.bytes_a_round == 0
        found[name] = {row["metric"]: row for row in outcome.rows}
        assert set(found[name]) == {"accuracy", "accuracy_before", "worst_decile", "spread"}
    assert found["untrained"]["accuracy"]["iterations"] == 0
    assert found["local"]["accuracy"]["iterations"] == 200 * 2  # half as many, of all clients
    assert found["local"]["accuracy"]["samples"] == 200 * 2 * 50 * 15
    assert found["local"]["accuracy"]["mean"] > found["untrained"]["accuracy"]["mean"] + 5


def test_alone_is_every_clients_own_descent(problem):
    cell = Cell("strict", "cifar10", "local", 3, 4)
    made = compose(cell, problem.loss).algorithm
    visit = fetch(draw(jax.random.key(0), made.needs, problem.train), problem.train)
    meta = problem.net.init(jax.random.key(1))
    state, _ = jax.jit(made.step)(made.init(meta, HYPER), visit, HYPER)
    assert visit.ids.tolist() == list(range(50))
    for i in (0, 49):
        w = meta
        for t in range(3):
            batch = Batch(visit.task.support.x[i, t], visit.task.support.y[i, t])
            w = jax.tree.map(lambda w, g: w - 0.001 * g, w, jax.grad(problem.loss)(w, batch))
        for mine, theirs in zip(jax.tree.leaves(state.meta), jax.tree.leaves(w), strict=True):
            np.testing.assert_allclose(mine[i], theirs, rtol=1e-12)


COMMAND = ("reproduce", "federated")


def whole_command(monkeypatch, folder, images, protocol, rounds):
    """The command on made images: its rows, by metric."""
    monkeypatch.setattr(federated_data, "images_of", lambda name, folder: images)
    words = ["--dataset", "cifar10", "--protocol", protocol, "--local-steps", 2, "--out", folder]
    words += ["--clients-per-round", 4, "--methods", "localmoml", "--rounds", rounds, "--seeds", 2]
    run([*COMMAND, *map(str, words)])
    rows = json.loads((folder / "rows.json").read_text())
    assert all(set(row) == FIELDS for row in rows)
    assert {(row["table"], row["method"], row["protocol"]) for row in rows} == {
        ("federated", "localmoml", protocol)
    }
    assert (folder / f"{protocol}-cifar10.png").is_file()
    return {row["metric"]: row for row in rows}


def test_the_whole_command(monkeypatch, tmp_path, images, capsys):
    rows = whole_command(monkeypatch, tmp_path, images, "released", 50)
    mine = rows["accuracy"]
    assert (mine["seeds"], mine["lost"], mine["iterations"]) == (2, 0, 100)
    assert mine["setting"] == {
        "h": 2, "clients": 4, "k": 5, "rounds": 50, "split": 7, "alpha": 0.001, "eta": 0.001,
        "beta": 0.9,
    }  # fmt: skip
    assert mine["samples"] == 50 * 4 * (5 + 10 + 5)
    assert 0 < mine["mean"] < 100
    assert "accuracy_unseen" not in rows
    assert "protocol released" in capsys.readouterr().out


def test_rows_of_an_earlier_command_are_kept(monkeypatch, tmp_path, images, capsys):
    monkeypatch.setattr(federated_data, "images_of", lambda name, folder: images)
    (tmp_path / "rows.json").write_text("earlier")
    (tmp_path / "rows-1.json").write_text("earliest")
    words = ["--dataset", "cifar10", "--protocol", "released", "--local-steps", 2, "--seeds", 1]
    words += ["--clients-per-round", 4, "--methods", "untrained", "--out", tmp_path]
    run([*COMMAND, *map(str, words)])
    assert (tmp_path / "rows-1.json").read_text() == "earliest"
    assert (tmp_path / "rows-2.json").read_text() == "earlier"
    assert str(tmp_path / "rows-2.json") in capsys.readouterr().out


def test_a_curve_of_one_point_is_seen(monkeypatch, problem):
    seen = []
    monkeypatch.setattr(federated_table, "save", lambda figure, path: seen.append(figure) or path)
    (cell,) = cells("released", "cifar10", [2], [4], ["fedavg"])
    test = scores_of(problem, cell.switches, 1)
    outcome = run_cell(cell, problem, test, seeds=1, budget=3, progress=False)
    federated_table.accuracy_curves([outcome], Path("curves"))
    (line,) = seen[0].axes[0].lines
    assert len(line.get_xdata()) == 1 and line.get_marker() == "o"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1}', "holds no rows"),
        ("[]", "holds no rows"),
        ("[1, 2]", "holds no rows"),
        ('[{"table": "sine"}]', "rows must be of table 'federated'"),
        ('[{"table": "federated"}]', "without 'dataset'"),
    ],
)
def test_files_that_hold_no_rows_of_the_table(tmp_path, capsys, text, said):
    (tmp_path / "rows.json").write_text(text)
    assert said in refused(capsys, *COMMAND, "--rows", tmp_path / "rows.json")


@pytest.mark.slow
def test_the_strict_command_chooses_its_step_size(monkeypatch, tmp_path, images):
    grid = {"alpha": (0.01,), "eta": (0.1, 0.001), "beta": (0.5,)}
    monkeypatch.setitem(GRIDS, "localmoml", grid)
    rows = whole_command(monkeypatch, tmp_path, images, "strict", 1000)
    assert rows["accuracy"]["setting"]["eta"] == 0.1  # 0.001 is too small for so few rounds
    assert rows["accuracy"]["setting"]["stopped"] in range(100, 1001, 100)
    assert rows["accuracy"]["mean"] > 90  # the made classes are easy
    assert {"accuracy_unseen", "worst_decile_unseen"} <= set(rows)


@pytest.mark.parametrize(("words", "name"), [([], ""), (["--split", 3], "-split-3")])
def test_another_split_has_a_folder_of_its_own(monkeypatch, tmp_path, capsys, words, name):
    monkeypatch.chdir(tmp_path)
    refused(capsys, *COMMAND, *words, "--data-dir", tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == [f"reproduce-federated{name}"]


def test_every_method_is_given_as_many_settings():
    counts = {name: math.prod(map(len, grid.values())) for name, grid in GRIDS.items()}
    assert counts.pop("untrained") == 4 and set(counts.values()) == {6}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--protocol", "ours"], "protocol must be one of released, released-scaled"),
        (["--dataset", "svhn"], "dataset must be one of mnist, cifar10, cifar100"),
        (["--methods", "maml"], "methods must be one of untrained, local, fedavg"),
        (
            ["--protocol", "paper", "--clients-per-round", "6"],
            "a multiple of 4 up to 48",
        ),
        (
            ["--clients-per-round", "51"],
            "clients_per_round must be from 1 to 50; got 51",
        ),
        (
            ["--protocol", "released", "--methods", "localmoml-carried"],
            "released has no localmoml-",
        ),
        (["--rounds", "0"], "rounds"),
        (["--local-steps", "0"], "local_steps"),
        (["--data-dir", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, words, said):
    assert said in refused(capsys, *COMMAND, "--out", tmp_path, *words)


def test_cells_are_in_the_tables_order():
    names = [(c.h, c.clients, c.method) for c in cells("strict", "mnist", [4], [4, 20], None)]
    assert names[:3] == [(4, 4, "untrained"), (4, 4, "local"), (4, 4, "fedavg")]
    assert len(names) == 14
    assert "localmoml-carried" not in {c.method for c in cells("released", "mnist", [4], [4], None)}
    assert {c.k for c in cells("strict", "mnist", [4], [4], None, [1, 5])} == {1, 5}
