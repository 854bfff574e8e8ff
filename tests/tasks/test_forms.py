"""Inputs that are pytrees, tasks in lists of unequal length, and tasks in memory-mapped files."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.errors import DataError
from moml.runtime import simulate
from moml.tasks.clients import unit
from moml.tasks.files import Mapped
from moml.tasks.sampler import draw, fetch
from moml.types import SampleSpec
from tests.support.often import often

RNG = np.random.default_rng(0)
N, M = 5, 12
IMAGE, AGE = RNG.integers(0, 256, (N, M, 4, 4), np.uint8), RNG.normal(size=(N, M, 1))
LABEL, WEIGHT = RNG.integers(0, 3, (N, M)), RNG.normal(size=(N, M))
pytestmark = pytest.mark.filterwarnings("ignore:a visit draws:moml.errors.MomlWarning")
NEEDS = [SampleSpec(3, support=2, query=2, restart=3), SampleSpec(2, support=4, visits=6)]
same = lambda one, other: jax.tree.map(np.testing.assert_array_equal, one, other)


class Patient(NamedTuple):
    image: np.ndarray
    age: np.ndarray


def flat(values):
    return values.reshape(N * M, *values.shape[2:])


X, Y = {"image": IMAGE, "age": AGE}, (LABEL, WEIGHT)
ROWS = np.split(RNG.permutation(N * M)[:50], [3, 20, 33, 34])  # ten are nobody's
FLAT_X, FLAT_Y = jax.tree.map(flat, (X, Y))
FORMS = {
    "arrays": lambda x, y: moml.from_arrays(x, y),
    "rows": lambda x, y: moml.from_rows(*jax.tree.map(flat, (x, y)), ROWS),
    "lists": lambda x, y: moml.from_lists(
        *[[jax.tree.map(lambda v, i=i: flat(v)[ROWS[i]], z) for i in range(N)] for z in (x, y)]
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("need", NEEDS)
def test_every_array_of_a_pytree_has_the_same_rows(form, need):
    tree = FORMS[form](X, Y)
    got = fetch(draw(jax.random.key(1), need, tree), tree).task.support
    for x, y, of_x, of_y in [
        (IMAGE, LABEL, lambda x: x["image"], lambda y: y[0]),
        (AGE, WEIGHT, lambda x: x["age"], lambda y: y[1]),
    ]:
        one = FORMS[form](x, y)
        alone = fetch(draw(jax.random.key(1), need, one), one).task.support
        same((of_x(got.x), of_y(got.y)), (alone.x, alone.y))
    ids = jnp.array([1, 4])
    assert jax.tree.structure(tree.full(ids).x) == jax.tree.structure(X)
    assert tree.full(ids).x["age"].shape[:2] == tree.full(ids).mask.shape


def test_lists_are_the_same_tasks_as_rows_and_arrays():
    rows, lists = FORMS["rows"](X, Y), FORMS["lists"](X, Y)
    assert (rows.n, rows.least) == (lists.n, lists.least) == (N, 1)
    for need in NEEDS:
        same(*(fetch(draw(jax.random.key(2), need, t), t) for t in (rows, lists)))
    same(rows.full(jnp.arange(N)), lists.full(jnp.arange(N)))


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("form", FORMS)
def test_blocks_of_pytrees_give_the_same_samples(form, devices):
    tasks = FORMS[form](X, Y)
    block = -(-N // devices)
    for i in range(N):
        cut = jax.tree.map(jnp.asarray, tasks.cut(tasks.data, devices, i // block))
        drawn = jnp.zeros((1, 1), jnp.int32)
        mine = tasks.fetch_from(cut, jnp.array([i % block]), drawn)
        same(mine, tasks.fetch(jnp.array([i]), drawn))


@pytest.mark.parametrize("form", FORMS)
def test_training_on_pytrees(form):
    def loss(params, batch):
        image = unit(batch.x.image).reshape(len(batch.y), -1)  # of rows it is done already
        return jnp.mean((image @ params["image"] + batch.x.age @ params["age"] - batch.y) ** 2)

    target = IMAGE.reshape(N, M, -1).mean(-1, keepdims=True) / 255 + 2 * AGE
    params = {"image": np.zeros((16, 1)), "age": np.zeros((1, 1))}
    tasks = FORMS[form](Patient(IMAGE, AGE), target)
    learner = moml.fit("fedavg", loss, params, tasks, iterations=300, k=4, eta=0.05)
    assert learner.history[-20:].mean() < 0.1 * learner.history[:20].mean()
    mine = learner.adapt(moml.Batch(Patient(IMAGE[0], AGE[0]), target[0]), steps=3)
    assert np.isfinite(mine["age"]).all()


def test_transform_gets_the_pytree():
    double = lambda x: {"age": 2 * x["age"]}
    tasks = moml.from_rows(FLAT_X, FLAT_Y, ROWS, double)
    got = tasks.fetch(jnp.array([0]), jnp.zeros((1, 1), jnp.int32))
    np.testing.assert_array_equal(got.x["age"][0, 0], 2 * FLAT_X["age"][ROWS[0][0]])


def bad(x=X, y=Y):
    return moml.from_arrays(x, y)


NAN = np.where(np.arange(M)[None, :, None] == 7, np.nan, AGE)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: bad({"image": IMAGE, "age": AGE[:, :3]}), "(5, 3, 1)"),
        (lambda: bad({"image": IMAGE, "age": NAN}), "x['age'] must be finite; task 0, row 7"),
        (lambda: bad({"image": "text"}), "x['image'] must be an array of numbers"),
        (lambda: bad({}), "must start with the same [tasks, samples]"),
        (
            lambda: moml.from_rows({"age": flat(NAN)}, FLAT_Y, [[1, 7]]),
            "x['age'] must be finite; client 0, row 7",
        ),
        (lambda: moml.from_lists([AGE[0]], []), "an entry a task; got 1 and 0"),
        (lambda: moml.from_lists([], []), "an entry a task; got 0 and 0"),
        (lambda: moml.from_lists([AGE[0]], [LABEL[0, :3]]), "xs[0] and ys[0] must have the same"),
        (lambda: moml.from_lists([AGE[0]], [LABEL[0][:0]]), "xs[0] and ys[0] must have the same"),
        (
            lambda: moml.from_lists([AGE[0], IMAGE[0]], [LABEL[0], LABEL[1]]),
            "xs and ys must have rows of one shape",
        ),
        (
            lambda: moml.from_lists([AGE[0], {"a": AGE[1]}], [LABEL[0], LABEL[1]]),
            "xs and ys must have rows of one shape",
        ),
    ],
)
def test_forms_that_do_not_fit(make, words):
    with pytest.raises(DataError) as caught:
        make()
    assert words in str(caught.value)


@pytest.fixture
def files(tmp_path):
    for name, values in {"image": flat(IMAGE), "age": flat(AGE), "label": flat(LABEL)}.items():
        np.save(tmp_path / f"{name}.npy", values)
    return {path.stem: path for path in tmp_path.iterdir()}


def both(files, rows=ROWS):
    """The same tasks in files and in memory."""
    x = {"image": files["image"], "age": files["age"]}
    mapped = moml.from_files(x, files["label"], rows)
    return mapped, moml.from_rows(FLAT_X, FLAT_Y[0], rows)


def loss(params, batch):
    hidden = batch.x["image"].reshape(len(batch.y), -1) @ params["image"]
    logits = hidden + batch.x["age"] @ params["age"]
    return moml.cross_entropy(lambda _, logits: logits)((), batch._replace(x=logits))


START = {"image": np.zeros((16, 3)), "age": np.zeros((1, 3))}


def test_files_give_the_rows_of_memory(files):
    mapped, memory = both(files)
    assert (mapped.n, mapped.least) == (memory.n, memory.least)
    assert not jax.tree.leaves(mapped.data)
    for need in NEEDS:
        same(*(fetch(draw(jax.random.key(1), need, t), t) for t in (mapped, memory)))
        jitted = jax.jit(
            lambda tasks, need=need: fetch(draw(jax.random.key(1), need, tasks), tasks)
        )
        same(jitted(mapped), jitted(memory))
    same(mapped.full(jnp.arange(N)), memory.full(jnp.arange(N)))


@pytest.mark.parametrize(
    "name, options",
    often(
        [
            ("maml", {"k": 2}),
            ("moml-v1", {"k": 2, "eager": True}),
            ("fedavg", {"k": 4, "local_steps": 3, "straggle": 0.3, "weighted": True}),
            ("bspiderboost", {"k": 2}),
        ],
        ["moml-v1", "fedavg"],
    ),
)
def test_training_from_files_equals_training_in_memory(files, name, options):
    mapped, memory = both(files)
    one, other = (
        moml.fit(name, loss, START, tasks, iterations=13, chunk=4, **options)
        for tasks in (mapped, memory)
    )
    same(one.history, other.history)
    same(one.meta, other.meta)
    test = moml.from_files(
        {"image": files["image"], "age": files["age"]}, files["label"], ROWS[1:3]
    )
    held = moml.from_rows(FLAT_X, FLAT_Y[0], ROWS[1:3])
    np.testing.assert_allclose(
        *(moml.evaluate(one, loss, tasks, shots=5) for tasks in (test, held)), rtol=1e-12
    )


def test_a_sweep_and_keyed_tasks_read_files_too(files):
    mapped, memory = both(files)
    grid = {"eta": [0.01, 0.1]}
    init = lambda key: jax.tree.map(jnp.asarray, START)
    one, other = (
        moml.sweep("maml", loss, init, tasks, seeds=2, grid=grid, iterations=5, k=2)
        for tasks in (mapped, memory)
    )
    same(one.meta, other.meta)
    noisy = moml.models.wrap_loss(
        lambda w, batch, key: loss(w, batch) * (1 + jax.random.uniform(key)), key=True
    )
    one, other = (
        moml.fit("maml", noisy, START, moml.tasks.keyed(tasks), iterations=5, k=2)
        for tasks in (mapped, memory)
    )
    same(one.meta, other.meta)


def test_training_reads_the_drawn_rows_alone(files, monkeypatch):
    seen, read = [], Mapped.read
    spy = lambda self, ids, samples: seen.append(samples.size) or read(self, ids, samples)
    monkeypatch.setattr("moml.tasks.files.Mapped.read", spy)
    tasks, _ = both(files)
    moml.fit("maml", loss, START, tasks, iterations=6, tasks_per_step=2, k=1, chunk=3)
    # S1 and S3 of two tasks: once for the shapes of 3 steps, then once for each stretch of 3
    assert seen == [2 * 3] * 2 * (1 + 2)


def test_stretches_of_files_fit_into_memory(files):
    mapped, memory = both(files)
    algorithm = moml.methods.maml(loss, n=N, k=3).algorithm
    budget = 3 * 2 * 3 * (16 * 8 + 8 + 8) * 10  # tasks, sets, k, bytes of a sample, steps
    fits = [simulate.steps_that_fit(algorithm, tasks, budget) for tasks in (mapped, memory)]
    assert fits[0] < 11 < fits[1]


def test_integers_of_files_stay_exact(tmp_path):
    np.save(tmp_path / "y.npy", np.array([1, 2**40]))
    with jax.enable_x64(False):
        tasks = moml.from_files(np.zeros((2, 1), np.float32), tmp_path / "y.npy", [[0], [1]])
        drawn = jnp.zeros((1, 1), jnp.int32)
        assert tasks.read(np.array([0]), np.zeros((1, 1), int)).y.tolist() == [[1]]
        with pytest.raises(DataError, match="does not fit int32"):
            tasks.read(np.array([1]), np.asarray(drawn))


def test_files_that_cannot_be_read_are_refused(tmp_path, files):
    (tmp_path / "text.npy").write_text("hello")
    with pytest.raises(DataError, match=r"x must be a .npy file of numbers"):
        moml.from_files(tmp_path / "text.npy", files["label"], ROWS)
    with pytest.raises(DataError, match=r"x must be a .npy file of numbers.*No such file"):
        moml.from_files(tmp_path / "none.npy", files["label"], ROWS)
    with pytest.raises(DataError, match="rows of client 0 must be whole numbers from 0 to 59"):
        moml.from_files(files["age"], files["label"], [[60]])
