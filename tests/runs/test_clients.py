"""Runs on clients: from files in the publisher's form to every client's accuracy, and the cost."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.config.config import options_of
from moml.config.problems import Clients
from moml.config.problems import clients as problem
from moml.data.images.arrays import by_class
from moml.data.split.partition import per_client
from moml.models import accuracy, cross_entropy, mlp, shifted
from moml.runs.job import SCORED, plan_of
from moml.runs.runs import train
from moml.runs.score import score
from moml.storage.metrics import read
from moml.tasks import from_rows
from moml.tasks.sampler import shuffled
from moml.training.evaluate import scores_on
from moml.types import Hyper
from tests.support.program import call
from tests.support.small_mnist import SMALL, TINY

pytestmark = pytest.mark.usefixtures("data")


def test_all_others_are_scored_on_once():
    sizes = [3, 7, 4]
    rows = np.split(np.arange(14), np.cumsum(sizes)[:-1])
    y = np.arange(1.0, 15.0)
    adapt = moml.methods.method("maml", lambda w, batch: w, n=3).adaptation(1)
    hyper = Hyper(eta=0.1, alpha=0.01)

    def each(seen):
        scores = scores_on(seen, adapt, shots=2, queries=None, most=7, chunk=2)
        tasks = from_rows(y, y, rows)
        return np.asarray(jax.jit(scores)(jnp.zeros(()), hyper, tasks, jax.random.key(0)))

    asked = lambda mine, support, query: jnp.sum(query.mask).astype(float)
    total = lambda mine, support, query: (
        jnp.sum(support.y) + jnp.sum(query.y * query.mask.astype(float))
    )
    np.testing.assert_array_equal(each(asked), [1, 5, 2])
    np.testing.assert_array_equal(each(total), [y[mine].sum() for mine in rows])


def test_any_order_of_the_first_numbers_is_drawn():
    some = [tuple(shuffled(jax.random.key(i), 3, 5)[:3].tolist()) for i in range(60)]
    assert set(some) == {(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)}


@pytest.mark.parametrize(
    "p",
    [SMALL, replace(SMALL, partition="dirichlet", smallest=20, concentration=0.5),
     replace(SMALL, partition="pathological", classes=3)],
    ids=lambda p: p.partition,
)  # fmt: skip
def test_every_client_is_tested_on_its_own_classes(p):
    train_, test = problem.images_of(p)
    split = problem.split_of(p, train_.y, test.y)
    assert len(split.train) == len(split.test) == 6 and len(split.unseen) == 2
    mine, theirs = per_client(train_.y, split.train), per_client(test.y, split.test)
    assert not theirs[mine == 0].any()
    assert p.partition == "dirichlet" or theirs[mine > 0].all()
    assert not set(np.concatenate(split.test)) & set(np.concatenate(split.unseen))


def test_the_built_problem_holds_these_images():
    built = SMALL.build(TINY)
    train_, test = problem.images_of(SMALL)
    split = problem.split_of(SMALL, train_.y, test.y)
    sizes = lambda tasks: tasks.sizes(jnp.arange(tasks.n)).tolist()
    assert sizes(built.tasks) == [len(mine) for mine in split.train]
    assert sizes(built.strangers) == [len(mine) for mine in split.unseen]
    whole = built.unseen.full(jnp.arange(6))
    for i, mine in enumerate(split.test):
        held = np.asarray(whole.x[i])[np.asarray(whole.mask[i])]
        np.testing.assert_allclose(held, test.x[mine] / 255)


def test_superclasses_unless_fine(monkeypatch):
    names, groups = [f"{k}" for k in range(40)], [f"{k % 20:02d}" for k in range(40)]
    x, y = np.zeros((80, 2, 2, 1), np.uint8), np.repeat(np.arange(40), 2)
    monkeypatch.setattr(problem, "load", lambda name, split: by_class(x, y, names, split, groups))
    sizes = [
        len(problem.images_of(Clients("cifar100", fine=fine))[0].names) for fine in (False, True)
    ]
    assert sizes == [20, 40]


def test_the_score_is_the_mean_of_all_clients(done):
    folder, config, _ = done
    last = read(folder / "metrics.jsonl")[-1]["score"]
    _, rows = score(folder)
    figures = {r["metric"]: r["mean"] for r in rows if r["setting"]["group"] == "took-part"
               and "client" not in r["setting"] and r["setting"]["model"] == "adapted"}  # fmt: skip
    assert figures["test_accuracy"] == pytest.approx(last, abs=1e-9)
    each = [r for r in rows if "client" in r["setting"]]
    assert len(each) == 3 * 6 + 2 * 2 and len(rows) == len(each) + 2 * 4 + 3 * 5
    # one of them by hand: adapt on 3 of its test images, count the others
    plan, learner = plan_of(config), moml.load(folder)
    own = plan.built.tasks.full(jnp.arange(6))
    pixels, i = np.asarray(own.x)[np.asarray(own.mask)], 4
    net = shifted(mlp(784, 3, 10), pixels.mean(), pixels.std())
    tasks = plan.built.unseen
    size = int(tasks.sizes(jnp.array([i]))[0])
    order = shuffled(jax.random.fold_in(jax.random.key(SCORED), i), size, 25)[:size]
    whole = tasks.full(jnp.array([i]))
    pick = lambda at: type(whole)(whole.x[0][at], whole.y[0][at])
    mine = learner.adapt(pick(order[:3]), steps=2)
    models = {"adapted": (mine, pick(order[3:])), "global": (learner.params, pick(order))}
    for model, (params, batch) in models.items():
        (row,) = [r for r in each if r["setting"]["client"] == i and r["setting"]["model"] == model
                  and r["setting"]["group"] == "took-part"]  # fmt: skip
        assert row["mean"] == pytest.approx(float(accuracy(net.predict)(params, batch)))
        assert row["setting"]["images"] == size


def test_the_commands(tmp_path, capsys):
    run, file = tmp_path / "run", tmp_path / "rows.json"
    words = ["--problem.n", 4, "--problem.a", 8, "--problem.unseen", 2, "--problem.hidden", 16]
    words += ["--iterations", 2000, "--log-every", 1000, "--score-every", 0, "--tasks-per-step", 2]
    words += ["--method", "fedavg", "--local-steps", 2, "--k", 3, "--eta", 0.02, "--alpha", 0.01]
    code, out, err = call(capsys, "train", "mnist-clients", *words, "--out", run)
    assert code == 0, err
    size = 8 * (784 * 16 + 16 + 16 * 10 + 10)  # bytes, in double precision
    sent = f"{2000 * size / 1e6:.3g} MB"  # 1000 rounds of 2 clients
    told = f"cost:   {sent} down, {sent} up; at the clients 4,000 gradients, 12,000 samples\n"
    assert "test accuracy" in out and told in out
    code, out, err = call(capsys, "score", run, "--shots", 5, "--json", file)
    assert code == 0, err
    assert "never took part" in out and "worst tenth" in out
    rows = [row for row in json.loads(file.read_text()) if "client" not in row["setting"]]
    assert {row["setting"].get("shots") for row in rows} == {5, None}
    after = [row for row in rows if row["metric"] == "test_accuracy"]
    models = [(row["setting"]["group"], row["setting"]["model"]) for row in after]
    assert models == [*(("took-part", m) for m in ("global", "fine-tuned", "adapted")),
                      *(("unseen", m) for m in ("global", "adapted"))]  # fmt: skip
    assert min(row["mean"] for row in after) > 70  # it has learned, for strangers too
    assert call(capsys, "score", run, "--tasks", 9)[::2] == (
        2, "moml: tasks must not be given for clients: all of them are scored\n",
    )  # fmt: skip


def test_a_convolutional_network_by_epochs(capsys, tmp_path):
    words = ["--problem.model", "cnn", "--method", "fedavg", "--rounds", 2, "--local-epochs", 1,
             "--batch-size", 8, "--problem.n", 2, "--problem.a", 4, "--problem.test-a", 4,
             "--problem.unseen", 0, "--tasks-per-step", 2, "--shots", 1]  # fmt: skip
    out = tmp_path / "run"
    code, _, wrong = call(capsys, "train", "mnist-clients", *words, "--out", out)
    assert code == 0, wrong
    rows = read(out / "metrics.jsonl")
    assert [row["iterations"] for row in rows] == [1, 2] and np.isfinite(rows[-1]["score"])
    assert rows[-1]["cost"]["up"] == 2 * 2 * 8 * 582_026  # the CNN's parameters, from two clients


METHODS = {
    "per-fedavg": {}, "localmoml": {}, "carried": {"method": "localmoml", "carried": True},
    "pfedme": {"prox_steps": 2, "prox": 5.0}, "fedavg": {"weighted": True}, "ditto": {},
    "reptile": {}, "moml": {}, "maml": {}, "protonet": {"alpha": None}, "moml-v2": {},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_any_method_trains(name, tmp_path):
    given = {"method": name} | METHODS[name]
    rounds = "local_steps" in options_of(given["method"])
    config = replace(TINY, local_steps=2 if rounds else None, **given)
    _, job = train(config, tmp_path / "run")
    rows = read(tmp_path / "run" / "metrics.jsonl")
    assert 0 <= rows[-1]["score"] <= 100
    assert ("cost" in rows[-1]) == (job.cost is not None) == rounds


KINDS = {
    "dirichlet": ["--problem.partition", "dirichlet"],
    "pathological": ["--problem.partition", "pathological", "--problem.classes", 1],
}
LINES = {
    "more in a round than there are": (["--tasks-per-step", 7], "must be at most n = 6; got 7"),
    "too few images of a class": (
        ["--problem.a", 40],
        "class 0 has 60 rows; 6 clients with a = 40 need 140 of it; a must be at most 17",
    ),
    "too few test images": (["--problem.test-a", 9], "6 and 2 clients with a = 9 need"),
    "too many clients": (["--problem.n", 60], "training part: 60 clients are too many"),
    "too many shots": (
        ["--shots", 15],
        "some of every client's test images to score on; the smallest has 15; got 15",
    ),
    "no test images": (
        [*KINDS["dirichlet"], "--problem.smallest", 1, "--problem.concentration", 0.05,
         "--problem.n", 40],
        "client 9 has 1 training rows, and so no test rows; take fewer clients, or larger",
    ),
    "one test image": (
        [*KINDS["pathological"], "--problem.n", 250, "--shots", 1], "smallest has 1; got 1",
    ),
    "more clients than images": (
        [*KINDS["pathological"], "--problem.n", 700], "702 clients, but there are only 600 rows",
    ),
    "too unlike": (
        [*KINDS["dirichlet"], "--problem.concentration", 0.02, "--problem.n", 30,
         "--problem.smallest", 1],
        "concentration (alpha) 0.02: the smallest of 32 clients must have 1 rows; got 0 at best",
    ),
    "classes that are not there": (
        ["--problem.classes", 11], "problem.classes must be a whole number from 1 to 10",
    ),
    "no superclasses": (["--problem.fine"], "problem.fine is for cifar100"),
    "of another partition": (
        ["--problem.concentration", 0.1],
        "problem.concentration is for dirichlet; the partition is half-and-half",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_what_cannot_be_is_one_line_and_code_2(name, tmp_path, capsys):
    words, line = LINES[name]
    small = ["--problem.n", 6, "--problem.unseen", 2, "--problem.a", 8, "--tasks-per-step", 3]
    code, out, err = call(
        capsys, "train", "mnist-clients", *small, *words, "--out", tmp_path / "run"
    )
    assert code == 2 and out == ""
    assert err.startswith("moml: ") and err.count("\n") == 1 and line in err
    assert not (tmp_path / "run").exists()


def test_one_image_and_one_class_are_enough_to_train_on():
    """Draws repeat where a client has too few: 1 image here, for S1 and S3 of 2 each."""
    x, y = np.random.default_rng(0).normal(size=(9, 4)), np.zeros(9, np.int32)
    net = mlp(4, 3, 2)
    tasks = from_rows(x, y, [[0], [1, 2], [3, 4, 5, 6, 7, 8]])
    given = {"k": 2, "tasks_per_step": 3, "local_steps": 2, "carried": True, "eta": 0.1}
    params = net.init(jax.random.key(0))
    with pytest.warns(
        moml.errors.MomlWarning, match="draws 4 samples of a task, the smallest has 1"
    ):
        learner = moml.fit(
            "localmoml", cross_entropy(net.predict), params, tasks, iterations=60, **given
        )
    assert learner.history[-1] < learner.history[0]
