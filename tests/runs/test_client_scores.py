"""Scores of clients by three models: global, kept or fine-tuned, adapted."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.config.config import Config
from moml.config.problems import Synthetic, Table
from moml.errors import ConfigError
from moml.report.clients import clients_in, group_lines
from moml.runs.client_scores import FineTuning, Group, Scored, figures_of, rows_of
from moml.runs.job import SCORED, plan_of
from moml.runs.runs import train
from moml.runs.score import score
from moml.runs.stored_scores import store, stored
from moml.tasks.sampler import draw_epochs
from moml.types import Batch
from tests.support.client_rows import accuracies, figure, last, picked
from tests.support.program import call
from tests.support.small_mnist import DITTO

pytestmark = pytest.mark.usefixtures("data")


def test_fine_tuning_is_sgd_on_the_training_images(tmp_path):
    config = replace(DITTO, method="fedavg", local_epochs=2, iterations=2)
    train(config, tmp_path / "run")
    learner, plan, i = moml.load(tmp_path / "run"), plan_of(config), 4
    tasks, key = plan.built.tasks, jax.random.fold_in(jax.random.key(SCORED), 4)

    def by_hand(epochs, rate, leaves=None):
        rows, sets = draw_epochs(key, tasks, jnp.array([i]), epochs, 3)
        w = learner.params
        for step in rows[0][: int(sets[0])]:
            batch = jax.tree.map(lambda x: x[0], tasks.fetch(jnp.array([i]), step[None]))
            new = jax.tree.map(lambda w, g: w - rate * g, w, jax.grad(plan.built.loss)(w, batch))
            w = w._replace(head=new.head) if leaves == "head" else new
        return accuracies(config, [w] * 6)[i]

    for given, wanted in (
        (FineTuning(), by_hand(2, 0.01)),
        (FineTuning(1, 0.1), by_hand(1, 0.1)),
        (FineTuning(1, 0.3, "head"), by_hand(1, 0.3, "head")),
    ):
        _, rows = score(tmp_path / "run", tuning=given)
        assert figure(rows, client=i, group="took-part", model="fine-tuned") == pytest.approx(
            wanted
        )
        (row, *_) = picked(rows, model="fine-tuned")
        assert row["setting"]["epochs"] == (given.epochs or 2)
        assert row["setting"]["rate"] == pytest.approx(given.rate or 0.01)
    with pytest.raises(ConfigError, match="leaves must match the name of a parameter; got 'tail'"):
        score(tmp_path / "run", tuning=FineTuning(leaves="tail"))


def test_worse_than_alone(ditto, tmp_path, capsys):
    folder, config, _ = ditto
    given = {"method": "local", "options": {"eta": 0.05, "k": 3, "local_steps": 2}}
    train(replace(DITTO, **given, tasks_per_step=6), tmp_path / "local")
    learner = moml.load(tmp_path / "local")
    own = accuracies(config, [learner.personal(i) for i in range(6)])
    _, rows = score(folder, local=tmp_path / "local")
    assert figure(rows, model="local") == pytest.approx(own.mean())
    kept = accuracies(config, [moml.load(folder).personal(i) for i in range(6)])
    assert figure(rows, "worse_than_local", model="kept") == (kept < own).sum() > 0
    _, out, _ = call(capsys, "score", folder, "--local", tmp_path / "local")
    assert out.count("worse than") == 2  # global, local
    # another problem, another method, a client that was in no round
    other = replace(DITTO.problem, a=9)
    train(replace(DITTO, **given, problem=other, iterations=2), tmp_path / "other")
    told = call(capsys, "score", folder, "--local", tmp_path / "other")
    assert told[0] == 2 and "problem.a must be 8 in" in told[2] and "; got 9\n" in told[2]
    told = call(capsys, "score", folder, "--local", folder)
    assert told[0] == 2 and f"run of the method local; {folder} is of ditto" in told[2]
    train(replace(DITTO, **given, iterations=2), tmp_path / "short")
    told = call(capsys, "score", folder, "--local", tmp_path / "short")
    assert told[0] == 2 and "was in no round of it; train it for longer" in told[2]


def test_figures_of_a_group():
    after = np.array([90.0, 10.0, 50.0, 20.0] + [70.0] * 16)
    images = np.arange(1, 21)
    scored = [Scored("global", after - 1), Scored("kept", after), Scored("local", after[::-1] + 1)]
    group = Group("took-part", np.arange(20), images, scored)
    figures = figures_of(group, scored[1], "test_accuracy", higher=True)
    assert figures == pytest.approx({
        "test_accuracy": after.mean(), "worst_decile": 15, "spread": after.std(),
        "test_accuracy_weighted": (after * images).sum() / 210, "worse_than_global": 0,
        "worse_than_local": (after < after[::-1] + 1).sum(),
    })  # fmt: skip
    errors = figures_of(group, scored[1], "test_error", higher=False)
    assert errors["worst_decile"] == 80 and errors["worse_than_global"] == 20
    of_global = figures_of(group, scored[0], "test_accuracy", higher=True)
    assert "worse_than_global" not in of_global and "worse_than_local" in of_global


def test_tasks_of_other_problems_have_models_of_their_own(tmp_path):
    config = Config(
        Synthetic(n=4, samples=20, unequal=True), method="ditto", iterations=20, k=3, shots=5,
        log_every=10, score_every=0, test_tasks=3, tasks_per_step=4, local_steps=2,
    )  # fmt: skip
    train(config, tmp_path / "run")
    _, rows = score(tmp_path / "run")
    assert rows[0]["metric"] == "test_loss" and rows[0]["mean"] == last(tmp_path / "run")
    assert "model" not in rows[0]["setting"]  # of unseen tasks
    own = plan_of(config).built.own()
    learner = moml.load(tmp_path / "run")
    kept = [
        float(own.score(learner.personal(i), None, Batch(x, y)))
        for i, (x, y) in enumerate(zip(*own.tasks.data, strict=True))
    ]
    assert figure(rows, group="took-part", model="kept") == pytest.approx(np.mean(kept))


def test_a_table_of_numbers_counts_errors(tmp_path):
    chance = np.random.default_rng(0)
    who, x = np.repeat(np.arange(4), 15), chance.normal(size=60)
    y = (who - 1.5) * x + 0.1 * chance.normal(size=60)
    lines = [f"{w},{a:.4f},{b:.4f}" for w, a, b in zip(who, x, y, strict=True)]
    (tmp_path / "table.csv").write_text("who,x,y\n" + "\n".join(lines) + "\n")
    config = Config(
        Table(str(tmp_path / "table.csv"), n=4, task="who", hidden=()), method="ditto", k=5,
        iterations=400, log_every=200, score_every=0, shots=2, tasks_per_step=4, local_steps=2,
        eta=0.1, alpha=0.1, prox=0.1,
    )  # fmt: skip
    train(config, tmp_path / "run")
    _, rows = score(tmp_path / "run")
    assert {row["metric"] for row in rows if "client" in row["setting"]} == {"test_error"}
    assert figure(rows, "test_error", model="kept") == pytest.approx(last(tmp_path / "run"))
    assert last(tmp_path / "run") < 0.1 < figure(rows, "test_error", model="global")
    each = lambda i: [figure(rows, "test_error", client=i, model=m) for m in ("kept", "global")]
    worse = sum(kept > common for kept, common in map(each, range(4)))
    assert figure(rows, "worse_than_global", model="kept") == worse < 3


def test_a_model_that_diverges_is_lost_and_listed_first(tmp_path):
    after = np.array([3.0, np.inf, 1.0])
    scored = [Scored("global", np.full(3, 2.0)), Scored("fine-tuned", after, {"epochs": 1})]
    group = Group("took-part", np.arange(3), np.array([5, 6, 7]), scored)
    like = {"setting": {"k": 1}, "seeds": 1, "lost": 0}
    rows = rows_of(like, [group], "test_error", higher=False)
    lost = [row for row in rows if row["mean"] is None]
    assert {row["lost"] for row in lost} == {1} and len(lost) == 5
    assert [one.number for one in clients_in(rows)] == [1, 0, 2]
    columns, lines = group_lines(rows)
    assert dict(zip(columns, lines[1], strict=True))["worse than global"] == "2"
    assert dict(zip(columns, lines[1], strict=True))["mean"] == "-"
    store(tmp_path, 7, rows)
    assert stored(tmp_path).rows == json.loads(json.dumps(rows))


def test_only_clients_are_fine_tuned(tmp_path, capsys):
    small = ["--iterations", 2, "--log-every", 1, "--score-every", 0, "--test-tasks", 2]
    assert call(capsys, "train", "sine", *small, "--out", tmp_path / "run")[0] == 0
    for words in (["--epochs", 2], ["--rate", 0.1], ["--leaves", "head"]):
        code, _, err = call(capsys, "score", tmp_path / "run", *words)
        assert code == 2 and "are for runs whose clients have samples of their own" in err


def test_scores_are_stored_with_their_step(ditto, tmp_path):
    folder, _, _ = ditto
    _, rows = score(folder, shots=[1, 2])
    found = stored(folder)
    assert found.step == 12 and found.rows == json.loads(json.dumps(rows))
    assert (folder / "clients.json").stat().st_mode & 0o777 == 0o600
    for text in ("{}", "[]", '{"step": 1, "rows": [{"setting": {}}]}', '{"step": 1, "rows": []}'):
        (tmp_path / "clients.json").write_text(text)
        with pytest.raises(moml.errors.DataError, match=r"cannot read .*clients\.json"):
            stored(tmp_path)
