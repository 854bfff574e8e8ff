import json
import os
from hashlib import blake2b
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.algorithms.parts.adapt import gradient_steps
from moml.cli import run
from moml.paper import protocols as released
from moml.paper.oneshot import search as oneshot_search
from moml.paper.oneshot import tasks as oneshot_tasks
from moml.paper.oneshot.table import (
    CHOSEN,
    OFFERED,
    OURS,
    cells,
    names_of,
    plan_of,
    run_cell,
    tuned,
)
from moml.paper.oneshot.tasks import (
    EPISODES,
    SETTINGS,
    TEST,
    accuracies,
    episode,
    look_of,
    nearest_image,
    problem_of,
)
from moml.paper.search import read_settings, write_settings
from moml.types import Hyper, SampleSpec
from tests.support.often import often
from tests.support.program import refused

ROW = [
    "table", "dataset", "setting", "method", "protocol", "metric", "mean", "std", "values",
    "seeds", "lost", "paper_mean", "paper_std", "samples", "iterations", "seconds",
]  # fmt: skip


def made(classes=760, each=4, side=3):
    """Noise around a picture of each class; the first two pixels of all say which class it is."""
    rng = np.random.default_rng(0)
    centre = rng.integers(40, 215, (classes, 1, side, side, 1))
    pool = np.clip(centre + rng.normal(0, 25, (classes, each, side, side, 1)), 0, 255)
    pool = pool.astype(np.uint8)
    pool[:, :, 0, 0, 0] = (np.arange(classes) // 256)[:, None]
    pool[:, :, 0, 1, 0] = (np.arange(classes) % 256)[:, None]
    return pool


def classes_in(tasks, name_of, size=1):
    """The classes of every task, as `size` draws of each show them."""

    def some(task):
        ids = task[None]
        drawn = tasks.draw(jax.random.fold_in(jax.random.key(0), task), ids, size)
        return jnp.rint(255 * tasks.fetch(ids, drawn).x[0]).astype(jnp.uint8)

    x = np.asarray(jax.jit(jax.vmap(some))(jnp.arange(tasks.n, dtype=jnp.int32)))
    return [[name_of(task[label :: tasks.ways]) for label in range(tasks.ways)] for task in x]


def numbered(images):
    [name] = {int(image[0, 0, 0]) * 256 + int(image[0, 1, 0]) for image in images}
    return name


def digest(image):
    return blake2b(image.tobytes(), digest_size=16).digest()


@pytest.mark.parametrize("dataset, classes", [("omniglot", 1000), ("cifar100", 100)])
def test_no_class_is_in_two_tasks(dataset, classes):
    setting, pool = SETTINGS[dataset], made(classes)
    table = problem_of(pool, setting)
    train, test = (classes_in(tasks, numbered) for tasks in (table.train, table.test))
    assert (len(train), len(test)) == (setting.train, setting.test)
    every = np.ravel(train).tolist() + np.ravel(test).tolist()
    assert len(set(every)) == len(every) == setting.ways * (setting.train + setting.test)
    choosing = problem_of(pool, setting, fold=1)  # what settings are chosen on: no test class
    known, asked = (classes_in(t, numbered) for t in (choosing.train, choosing.test))
    assert not set(np.ravel(asked)) & set(np.ravel(known))
    assert not set(np.ravel(test)) & (set(np.ravel(known)) | set(np.ravel(asked)))
    assert set(np.ravel(known)) <= set(np.ravel(train))


@pytest.mark.parametrize("dataset, side", often([("omniglot", 28), ("cifar100", 32)], ["omniglot"]))
def test_no_class_of_the_real_data_is_in_two_tasks(dataset, side):
    if not os.environ.get("MOML_DATA"):
        pytest.skip("MOML_DATA is not set")
    pool = oneshot_tasks.images_of(dataset, side)
    where = {}
    for number, images in enumerate(pool):
        for image in images:
            where.setdefault(digest(image), set()).add(number)

    def name_of(images):
        [number] = set.intersection(*(where[digest(image)] for image in images))
        return number

    table = problem_of(pool, SETTINGS[dataset])
    every = [np.ravel(classes_in(tasks, name_of, 2)) for tasks in (table.train, table.test)]
    numbers = np.concatenate(every).tolist()
    assert len(set(numbers)) == len(numbers) == {"omniglot": 700, "cifar100": 100}[dataset]
    if dataset == "omniglot":  # paper, most of a drawing, is 0
        assert (pool == 0).mean() > 0.7


def slow(problem, params, steps, alpha, count, reset):
    """The test as a plain loop: task after task, episode after episode, step after step."""
    found = []
    grad = jax.jit(jax.grad(problem.loss))
    draw = jax.jit(lambda key, task: episode(problem.test, key, task))
    for task in range(problem.test.n):
        w = params
        keys = jax.random.split(jax.random.fold_in(jax.random.key(TEST), task), count)
        for key in keys:
            support, query = draw(key, jnp.asarray(task, jnp.int32))
            p = params if reset else w
            for _ in range(steps):
                g = grad(p, support)
                p = jax.tree.map(lambda p, g: p - alpha * g, p, g)
            said = np.argmax(np.asarray(problem.net.predict(p, query.x)), axis=1)
            found.append(100 * np.mean(said == np.asarray(query.y)))
            w = p
    return np.reshape(found, (problem.test.n, count))


def test_the_released_test_keeps_learning_and_the_strict_one_resets():
    problem = problem_of(made(100), SETTINGS["cifar100"])
    params = problem.net.init(jax.random.key(3))
    hyper = jax.tree.map(jnp.asarray, Hyper(eta=1.0, alpha=0.3))
    adapt = gradient_steps(problem.loss, 2)
    found = {}
    for learns in (False, True):
        test = accuracies(problem, adapt, keeps_learning=learns, count=8)
        found[learns] = np.asarray(jax.jit(test)(params, hyper))
        by_hand = slow(problem, params, 2, 0.3, 8, reset=not learns)
        np.testing.assert_allclose(found[learns], by_hand)
    np.testing.assert_array_equal(found[True][:, 0], found[False][:, 0])
    assert (found[True] != found[False]).any()
    assert found[True][:, -3:].mean() > found[False].mean() + 10  # it did learn


def test_queries_are_never_in_the_support_unless_drawn_apart():
    tasks = problem_of(made(100, each=2), SETTINGS["cifar100"]).test
    same = {}
    for repeats in (False, True):
        drawn = released.with_repeats(tasks) if repeats else tasks
        one = lambda key, tasks=drawn: episode(tasks, key, jnp.zeros((), jnp.int32))
        support, query = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 40))
        assert support.x.shape == (40, 5, 3, 3, 1)
        same[repeats] = np.mean(np.all(np.asarray(support.x == query.x), axis=(2, 3, 4)))
    assert same[False] == 0
    assert 0.3 < same[True] < 0.7  # one of two images


@pytest.mark.parametrize("protocol", OFFERED)
@pytest.mark.parametrize("dataset", SETTINGS)
def test_every_cell_composes_with_its_quirks(protocol, dataset):
    setting = SETTINGS[dataset]
    problem = problem_of(made(setting.ways * (setting.train + setting.test)), setting)
    plans = {c.method: plan_of(c, problem) for c in cells(protocol, dataset, None)
             if c.method != "pixels"}  # fmt: skip
    assert set(plans) | {"pixels"} == set(names_of(protocol, dataset)) | {"pixels"}
    curvature = "first-order" if protocol == "released" else "exact"
    assert plans["maml"].method.options["curvature"] == curvature
    factor = 0.3 if protocol == "released" else 1.0  # the gradient through v1's average
    assert plans["moml-v1"].grid["eta"] == [pytest.approx(0.001 * factor)]
    assert plans["moml-v1"].method.eager == (protocol == "released")
    assert plans["moml-v2"].method.options["two_batches"] == (protocol == "paper")
    needs = jax.tree.leaves(
        [plans[name].method.algorithm.needs for name in ("maml", "moml-v1", "localmoml")],
        is_leaf=lambda need: isinstance(need, SampleSpec),
    )
    assert all(need.replace == (protocol == "released") for need in needs)
    assert plans["nasa"].iterations == {"omniglot": 20, "cifar100": 117}[dataset]
    assert plans["joint"].grid["alpha"] == [0.0] and plans["maml"].grid["alpha"] == [0.01]
    assert plans["untrained"].iterations == 0
    assert plans["protonet"].method.options["optimizer"] == "sgd"


@pytest.mark.parametrize(
    "protocol, name, dataset",
    [("released", "protonet", "cifar100"), ("strict", "pixels", "cifar100"),
     pytest.param("released", "moml-v2", "omniglot", marks=pytest.mark.slow),
     pytest.param("strict", "moml-memory", "cifar100", marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_cell_runs_and_tells(protocol, name, dataset):
    setting = SETTINGS[dataset]
    problem = problem_of(made(setting.ways * (setting.train + setting.test)), setting)
    [cell] = cells(protocol, dataset, [name])
    outcome = run_cell(cell, problem, seeds=2, budget=4, progress=False)
    [row] = outcome.rows
    assert list(row) == ROW
    assert 0 <= row["mean"] <= 100 and row["lost"] == 0
    assert (row["table"], row["metric"], row["dataset"]) == ("oneshot", "accuracy", dataset)
    assert row["paper_mean"] == {"protonet": 31.11, "moml-v2": 45.81}.get(name)
    episodes = {"protonet": 1, "pixels": 1}.get(name, EPISODES)
    assert outcome.scores.shape[2] == episodes
    assert row["seeds"] == (1 if name == "pixels" else 2)
    assert json.loads(json.dumps(row)) == row


def test_the_nearest_image_is_found():
    clean = np.broadcast_to(made(100)[:, :1], (100, 4, 3, 3, 1))  # all images of a class alike
    assert float(nearest_image(problem_of(np.array(clean), SETTINGS["cifar100"]))()) == 100


def test_looks():
    pool = made(100)
    ids = jnp.zeros(1, jnp.int32)
    seen = {}
    for images in ("3", "3-paper", "3-bytes", "3-centred"):
        tasks = problem_of(pool, SETTINGS["cifar100"], look_of(images)[1]).train
        seen[images] = np.asarray(tasks.fetch(ids, tasks.draw(jax.random.key(0), ids, 1)).x)
    np.testing.assert_allclose(seen["3"] + seen["3-paper"], 1)
    np.testing.assert_allclose(seen["3-bytes"], 255 * seen["3"])
    np.testing.assert_allclose(seen["3-centred"], 2 * seen["3"] - 1)


def test_the_chosen_settings_are_the_best_that_were_tried():
    content = json.loads(CHOSEN.read_text())
    for dataset, rows in tuned().items():
        assert set(rows) | {"pixels"} == set(OURS)
        for name, how in rows.items():
            told = content["tables"][dataset][name]
            assert told["command"].startswith("moml reproduce oneshot-search")
            best = max(told["tried"], key=lambda tried: tried["accuracy"] or -1)
            assert {**how._asdict(), **best} == {**how._asdict(), "accuracy": best["accuracy"]}
    for rows in tuned().values():
        assert rows["moml"].beta is None and rows["moml-memory"].beta < 1


@pytest.mark.slow
def test_a_search_takes_the_best(tmp_path, monkeypatch):
    pool = made(100, each=3)
    base = oneshot_search.SHORT._replace(method="joint", inner_steps=1)
    few = {"joint-tuned": oneshot_search.Variant(base, {"eta": [0.001, 0.01], "alpha": [0.0, 1.0]})}
    monkeypatch.setitem(oneshot_search.VARIANTS, "cifar100", few)
    monkeypatch.setitem(oneshot_search.FOLDS, "cifar100", 1)
    kept = {"rows": {"omniglot": {"moml": {}}}}
    content = oneshot_search.search_row(
        pool, "cifar100", "joint-tuned", kept, seeds=1, budget=20, command="moml"
    )
    tried = content["tables"]["cifar100"]["joint-tuned"]["tried"]
    chosen = content["rows"]["cifar100"]["joint-tuned"]
    assert len(tried) == 4 and tried[0]["accuracy"] == max(one["accuracy"] for one in tried)
    assert chosen["alpha"] == tried[0]["alpha"] and chosen["eta"] == tried[0]["eta"]
    assert "moml" in content["rows"]["omniglot"]
    alike = {round(one["accuracy"]) for one in tried if one["alpha"] == 0}
    assert alike == {20}  # without a step, classes that begin alike are a guess
    path = tmp_path / "s.json"
    write_settings(content, path)
    assert read_settings(path, oneshot_search.KEYS) == content
    path.write_text("[]")
    with pytest.raises(moml.errors.DataError, match=r"s\.json"):
        read_settings(path, oneshot_search.KEYS)


@pytest.mark.slow
def test_the_command_from_end_to_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(oneshot_tasks, "images_of", lambda data, side, folder: made(100))
    words = "reproduce oneshot --dataset cifar100 --seeds 2 --iterations 5 --protocol released"
    run([*words.split(), "strict", "--methods", "moml-v1", "--out", str(tmp_path)])
    told = capsys.readouterr().out
    assert "chance 20 %" in told and "40.49" in told
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["protocol"] for row in rows] == ["released", "strict"]
    assert [row["method"] for row in rows] == 2 * ["moml-v1"]
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "released-cifar100-32.png", "episode-cifar100-32.png",
    }  # fmt: skip


@pytest.mark.parametrize(
    "words, told",
    [
        ("--dataset imagenet", "imagenet"),
        ("--protocol rigorous", "rigorous"),
        ("--methods nosuch", "nosuch"),
        ("--images 28-pink", "28-pink"),
        ("--seeds 0", "seeds"),
        ("--dataset omniglot --data-dir {empty}", "no omniglot in"),
        ("--data-dir {empty}/none", "must be a folder"),
    ],
)
def test_mistakes_are_told_in_one_line(words, told, tmp_path, capsys):
    given = words.format(empty=tmp_path).split()
    assert told in refused(capsys, "reproduce", "oneshot", *given, "--out", tmp_path / "out")
    assert not list(Path(tmp_path).rglob("rows.json"))
