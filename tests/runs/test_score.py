"""`moml score`, and runs on episodes: from the configuration to a score of unseen classes."""

import json
import os
from dataclasses import replace

import jax
import numpy as np
import pytest

import moml
from moml.cli import run as command
from moml.config.config import Config, with_method
from moml.config.problems import Episodes, Sine
from moml.config.problems import episodes as problem
from moml.config.starts import STARTS
from moml.errors import ConfigError
from moml.runs.runs import resume, train
from moml.runs.score import score
from moml.storage.metrics import read
from tests.support.often import often

TINY = replace(
    STARTS["omniglot-small"],
    problem=Episodes(ways=3, n=7, model="mlp", hidden=(4,)),
    iterations=4,
    log_every=2,
    score_every=2,
    tasks_per_step=2,
    test_tasks=5,
)


@pytest.fixture
def small_images(monkeypatch):
    """Pictures of 8 x 8 in the place of the data set: 12 classes to train on, 6 to score on."""
    made = np.random.default_rng(0).integers(0, 256, (18, 20, 8, 8, 1), np.uint8)
    monkeypatch.setattr(problem, "classes_of", lambda p: (made[:12], made[12:]))


def test_asked_in_the_same_way_the_score_is_the_last_of_the_run(tmp_path):
    config = Config(Sine(), iterations=20, log_every=10, score_every=0, test_tasks=4)
    train(config, tmp_path / "run")
    _, rows = score(tmp_path / "run")
    assert rows[0]["mean"] == read(tmp_path / "run" / "metrics.jsonl")[-1]["score"]
    assert rows[0]["metric"] == "test_error" and rows[0]["samples"] == 20 * 3 * 2
    _, rows = score(tmp_path / "run", shots=[2, 5], steps=3, tasks=6)
    assert [row["setting"]["shots"] for row in rows] == [2, 5]
    assert {row["setting"]["steps"] for row in rows} == {3} and rows[0]["mean"] != rows[1]["mean"]


@pytest.mark.parametrize(
    "wrong, word",
    [
        ({"shots": [0]}, "shots"),
        ({"steps": 0}, "test_steps"),
        ({"tasks": 0}, "test_tasks"),
        ({"alone": True}, "alone"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_done(tmp_path, wrong, word):
    train(Config(Sine(), iterations=2, log_every=1, score_every=0, test_tasks=2), tmp_path / "run")
    with pytest.raises(ConfigError, match=word):
        score(tmp_path / "run", **wrong)


def test_where_there_is_no_run(tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        score(tmp_path)


@pytest.mark.parametrize(
    "method", often(["moml-v1", "protonet", "reptile", "localmoml"], ["moml-v1"])
)
def test_episodes_train_by_any_method(tmp_path, small_images, method):
    config = with_method(TINY, method)
    train(config, tmp_path / "run")
    rows = read(tmp_path / "run" / "metrics.jsonl")
    assert all(0 <= row["score"] <= 100 for row in rows if row["score"] is not None)
    drawn = {"reptile": 1, "localmoml": 2 + 2 / 5}.get(method, 2)  # batches of 3 classes
    steps = 1 if method == "localmoml" else rows[-1]["iterations"]
    visits = 5 if method == "localmoml" else 1
    assert rows[-1]["samples"] == pytest.approx(steps * 2 * 3 * visits * drawn)


def test_a_higher_accuracy_is_the_better_checkpoint(tmp_path, small_images):
    config = replace(TINY, save_seconds=0.0, iterations=20, score_every=2, keep=1)
    train(config, tmp_path / "run")
    rows = read(tmp_path / "run" / "metrics.jsonl")
    best = max(row["score"] for row in rows)
    assert len({row["score"] for row in rows}) > 1  # else nothing is chosen
    _, scored = score(tmp_path / "run", best=True)
    assert scored[0]["mean"] == best


@pytest.mark.slow
def test_alone_and_together(tmp_path, small_images):
    conv = replace(TINY.problem, model="conv4", filters=2)
    train(replace(TINY, problem=conv, iterations=2, score_every=0), tmp_path / "run")
    together, alone = (score(tmp_path / "run", alone=a, tasks=20)[1][0] for a in (False, True))
    assert alone["setting"]["alone"] and together["mean"] != alone["mean"]


def test_a_run_on_episodes_is_resumed(tmp_path, small_images):
    train(TINY, tmp_path / "whole")
    short = replace(TINY, iterations=2)
    train(short, tmp_path / "two")
    text = (tmp_path / "two" / "config.toml").read_text()
    (tmp_path / "two" / "config.toml").write_text(
        text.replace("iterations = 2\n", "iterations = 4\n")
    )
    resume(tmp_path / "two", ["iterations"])
    assert read(tmp_path / "two" / "metrics.jsonl")[-1]["step"] == 4
    learner = moml.load(tmp_path / "whole")
    assert jax.tree.leaves(learner.params)[0].dtype == np.float64


def test_the_command_writes_rows(tmp_path, small_images, capsys):
    train(TINY, tmp_path / "run")
    command(
        ["score", str(tmp_path / "run"), "--shots", "1", "2", "--json", str(tmp_path / "r.json")]
    )
    rows = json.loads((tmp_path / "r.json").read_text())
    assert [row["setting"]["shots"] for row in rows] == [1, 2]
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("p", [
    Episodes(rotations=False),
    Episodes(rotations=False, split="publisher"),
    Episodes(rotations=False, validation=100),
    Episodes("cifar100", rotations=False, ways=5),
    Episodes("cifar100", rotations=False, ways=5, validation=16),
])  # fmt: skip
def test_no_image_of_the_real_sets_is_on_both_sides(p):
    if not os.environ.get("MOML_DATA"):
        pytest.skip("MOML_DATA is not set")
    parts = problem.classes_of(p)
    sizes = {
        ("omniglot", "usual", 0): (1200, 423),
        ("omniglot", "publisher", 0): (964, 659),
        ("omniglot", "usual", 100): (1100, 100),
        ("cifar100", "usual", 0): (80, 20),
        ("cifar100", "usual", 16): (64, 16),
    }
    assert tuple(map(len, parts)) == sizes[p.dataset, p.split, p.validation]
    seen = [{image.tobytes() for image in part[:, 0]} for part in parts]
    assert not seen[0] & seen[1]
    assert all(len(one) == len(part) for one, part in zip(seen, parts, strict=True))


def test_turned_characters_are_trained_on_alone():
    if not os.environ.get("MOML_DATA"):
        pytest.skip("MOML_DATA is not set")
    train_classes, test_classes = problem.classes_of(Episodes())
    assert len(train_classes) == 4800 and len(test_classes) == 423
    assert train_classes.shape[1:] == (20, 28, 28, 1)
    assert 0 < train_classes.mean() < 60  # ink is the brighter, and little of a picture


def test_too_much_validation_is_refused():
    if not os.environ.get("MOML_DATA"):
        pytest.skip("MOML_DATA is not set")
    with pytest.raises(ConfigError, match=r"problem\.validation must leave 20 classes"):
        problem.classes_of(Episodes(validation=1190))
