"""The budget is the same for all, eta is chosen on tuning tasks, regrets add up."""

import jax
import numpy as np
import pytest

import moml
from moml.cli import run
from moml.data.images.arrays import by_class
from moml.paper.budget import families, study
from moml.paper.budget.families import FAMILIES, shots_of
from moml.paper.budget.verdict import comparisons, regrets
from moml.storage.files import read_json, write_json
from moml.training.choice import choose

PLAN = study.Plan(ks=(1, 2), betas=(1.0, 0.5), shots=(5,), steps=(1,), seeds=2, share=0.001)


def row(k, beta, mean, *, protocol="strict", metric="test_error", eta=0.005, **more):
    setting = {"k": k, "beta": beta, "eta": eta, "shots": 5, "steps": 1} | more
    return {"dataset": "made-up", "protocol": protocol, "metric": metric, "setting": setting,
            "mean": mean, "std": 0.0, "tuning": mean}  # fmt: skip


def test_all_k_have_the_same_samples():
    family = FAMILIES["sine-25"](None)
    made = [study.measured(family, PLAN, k) for k in PLAN.ks]
    assert {row["samples"] for rows in made for row in rows} == {40 * 6}
    assert [rows[0]["iterations"] for rows in made] == [40, 20]
    assert [row["setting"]["beta"] for row in made[0]] == [1.0, 0.5]
    assert {row["method"] for row in made[0]} == {"maml", "moml"}


@pytest.mark.parametrize("name", ["sine-25", "logistic"])
def test_all_k_have_the_same_steps_or_work(name):
    family = FAMILIES[name](None)
    steps, work = (study.Plan(equal=equal, share=1.0) for equal in ("steps", "work"))
    assert {study.iterations_of(family, steps, k) for k in (1, 5)} == {40_000}
    some = [study.iterations_of(family, work, k) for k in (1, 2, 5)]
    assert some[0] == 40_000 and 20_000 < some[1] < 30_000 and 8_000 < some[2] < 15_000
    grows = [study.relative_work(family, k) for k in (1, 2, 3)]
    assert grows[0] == 1 and grows[2] - grows[1] == pytest.approx(grows[1] - 1, rel=0.05)


def test_eta_is_chosen_on_tuning_tasks_and_the_test_reported(monkeypatch):
    family = FAMILIES["sine-25"](None)
    by = {id(family.tuning): [[3, 3, 1, 1], [1, 1, 3, 3]], id(family.test): [[7, 7, 8, 8]] * 2}
    monkeypatch.setattr(
        study, "scores", lambda family, tasks, *_: np.array(by[id(tasks)], float).ravel()
    )
    rows = study.measured(family, PLAN, 2)
    low, high = PLAN.etas(family)
    assert [(r["setting"]["eta"], r["mean"]) for r in rows] == [(high, 8.0), (low, 7.0)]


def test_the_best_with_and_without_memory():
    rows = [
        row(1, 1.0, 5.0),
        row(5, 1.0, 3.0),
        row(1, 0.2, 2.0),
        row(5, 0.2, 1.0),
        row(1, 0.5, None),
    ]
    (found,) = comparisons([*rows, row(1, 0.1, 0.0, protocol=study.ONE_ETA)])
    assert [one["mean"] for one in found] == [3.0, 2.0, 1.0]
    (found,) = comparisons([one | {"metric": "test_accuracy"} for one in rows])
    assert [one["mean"] for one in found] == [5.0, 2.0, 2.0]
    lucky = [row(1, 0.1, 0.5) | {"tuning": 9.0}, row(2, 0.1, 0.6) | {"tuning": None}]
    (found,) = comparisons([*rows, *lucky])
    assert [one["mean"] for one in found] == [3.0, 2.0, 1.0]


def test_the_regret_is_over_the_best_and_over_no_memory():
    given = {"protocol": study.ONE_ETA}
    rows = [
        row(1, 1.0, 4.0, **given),
        row(1, 0.2, 2.0, **given),
        row(1, 0.2, 0.1, eta=0.1, **given),
    ]
    auto = row(1, "auto", 2.5, **given)
    (found,) = regrets([*rows, auto, row(1, 0.2, 1.0)])
    assert (found.over_best, found.over_one) == (pytest.approx(25.0), pytest.approx(-37.5))
    (found,) = regrets([one | {"metric": "test_accuracy"} for one in [*rows, auto]])
    assert (found.over_best, found.over_one) == (1.5, 1.5)


def test_families_have_tasks_apart_and_shots_that_fit():
    for name, seen in (("sine-400", study.SHOTS), ("logistic", study.SHOTS)):
        family = FAMILIES[name](None)
        assert shots_of(family, study.SHOTS) == list(seen)
        draw = lambda tasks: tasks.fetch(
            jax.numpy.arange(3), tasks.draw(jax.random.key(0), jax.numpy.arange(3), 4)
        )
        parts = [draw(tasks).x for tasks in (family.train, family.tuning, family.test)]
        if name == "logistic":
            assert not (parts[0] == parts[1]).all() and not (parts[1] == parts[2]).all()
        short = family._replace(test=moml.from_arrays(np.zeros((3, 60, 1)), np.zeros((3, 60, 1))))
        queries = family.queries
        assert shots_of(short, study.SHOTS) == [s for s in study.SHOTS if s + queries <= 60]


def test_images_of_clients_are_trained_on_or_tuned_on_or_tested_on(monkeypatch):
    generator, y = np.random.default_rng(0), np.repeat(np.arange(10), 1000)
    draw = lambda split, y: by_class(
        generator.integers(0, 256, (len(y), 3, 3, 1)).astype(np.uint8), y, list("abcdefghij"), split
    )
    images = draw("train", np.repeat(y, 3)), draw("test", y)
    monkeypatch.setattr(families, "images_of", lambda name, folder: images)
    family = FAMILIES["cifar10-clients"](None)
    assert shots_of(family, study.SHOTS) == list(study.SHOTS)
    full = [tasks.full(np.arange(50)) for tasks in (family.train, family.tuning, family.test)]
    seen = [{row.tobytes() for row in np.asarray(x.x).reshape(-1, 9)} for x in full]
    assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]
    kinds = [[set(np.asarray(row).tolist()) for row in x.y] for x in full]
    assert kinds[0] == kinds[1] == kinds[2]


def command(*words):
    run(["reproduce", "budget", *map(str, words)])


def test_the_command_goes_on_with_earlier_rows(tmp_path, capsys):
    small = ("--iterations", 20, "--shots", 5, "--seeds", 1, "--k")
    command(*small, 1, "--out", tmp_path / "one")
    first = read_json(tmp_path / "one" / "rows.json")
    marked = [row | {"mean": 1234.0} for row in first]
    write_json(marked, tmp_path / "marked.json")
    command(*small, 1, 2, "--rows", tmp_path / "marked.json", "--out", tmp_path / "two")
    both = read_json(tmp_path / "two" / "rows.json")
    assert both[: len(first)] == marked and {row["setting"]["k"] for row in both} == {1, 2}
    assert (tmp_path / "two" / "budget.png").exists() and "1234" in capsys.readouterr().out


def test_the_command_takes_beta_and_eta_and_trains_only_the_beta_that_are_left(tmp_path, capsys):
    small = ("--no-picture", "--iterations", 20, "--shots", 5, "--seeds", 1, "--k", 2)
    small += ("--eta", 0.003, "--equal", "steps", "--steps", 2)
    command(*small, "--beta", 1, "--out", tmp_path / "one")
    first = read_json(tmp_path / "one" / "rows.json")
    marked = [row | {"mean": 1234.0} for row in first]
    write_json(marked, tmp_path / "marked.json")
    command(*small, "--beta", 1, 0.4, "--rows", tmp_path / "marked.json", "--out", tmp_path / "two")
    both = read_json(tmp_path / "two" / "rows.json")
    assert both[: len(first)] == marked and len(both) == 2 * len(first)
    about = {(*(row["setting"][n] for n in ("beta", "eta", "steps")), row["iterations"])
             for row in both}  # fmt: skip
    assert about == {(1, 0.003, 2, 20), (0.4, 0.003, 2, 20)}
    out = capsys.readouterr().out
    assert "Equal steps (T)" in out and "sine-25: T = 20 at K = 2" in out


def test_the_regret_of_auto_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(choose, "SHORTEST", 50)
    command(
        "--auto", "--iterations", 60, "--shots", 5, "--seeds", 1, "--k", 1, "--out",
        tmp_path,
    )  # fmt: skip
    out = capsys.readouterr().out
    assert "sine-25: mean excess" in out and "over 2 cells" in out
    rows = read_json(tmp_path / "rows.json")
    assert [row["setting"]["steps"] for row in rows if row["setting"]["beta"] == "auto"] == [1, 10]
    assert {row["protocol"] for row in rows} == {study.ONE_ETA}


def test_parts_are_joined_and_rows_of_another_budget_are_not(tmp_path):
    small = ("--no-picture", "--shots", 5, "--seeds", 1, "--iterations")
    for k in (1, 2):
        command(*small, 20, "--k", k, "--out", tmp_path / str(k))
    parts = [tmp_path / str(k) / "rows.json" for k in (1, 2)]
    command(*small, 20, "--k", 1, 2, "--rows", *parts, "--out", tmp_path / "both")
    joined = read_json(tmp_path / "both" / "rows.json")
    assert joined == [row for part in parts for row in read_json(part)]
    assert not (tmp_path / "both" / "budget.png").exists()
    command(*small, 40, "--k", 1, "--rows", *parts, "--out", tmp_path / "other")
    assert {row["iterations"] for row in read_json(tmp_path / "other" / "rows.json")} == {40}
