"""How many programs a table compiles, and that predictions need none."""

import jax
import numpy as np
import pytest
from jax import monitoring

import moml
from moml.algorithms.tabular.members import Shape, parts
from moml.models.table import knots
from moml.tabular.fitting.fit import fit_groups
from moml.tabular.fitting.program import train_program
from moml.tabular.model import TableModel
from moml.types import Batch, Hyper

COMPILED = "/jax/core/compile/backend_compile_duration"
# The first models; the draws; a training for each of three kinds; an adaptation, or two if the
# second training keeps other kinds; of both trainings, which differ in their number of members,
# the check for divergence and the choice of the last finite models.
MOST = 11


def users():
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(30), 8)
    x, z = rng.normal(size=(2, len(user)))
    y = rng.normal(size=30)[user] + x - 0.5 * z + 0.1 * rng.normal(size=len(user))
    return {"user": user, "x": x, "z": z, "y": y}


@pytest.fixture
def compiled():
    """The names of what is compiled from here on."""
    found, live = [], [True]

    def listen(event, duration, **about):
        if live[0] and event == COMPILED:
            found.append(about.get("fun_name", event))

    monitoring.register_event_duration_secs_listener(listen)
    yield found
    live[0] = False


def train(table):
    return moml.train_table(table, task="user", target="y", iterations=8, members=2)


def test_a_table_compiles_few_programs_and_one_like_it_none(compiled):
    jax.clear_caches()
    train_program.cache_clear()
    table = users()
    run = train(table)
    assert 0 < len(compiled) <= MOST, compiled
    compiled.clear()
    other = train(table | {"x": 3 * table["x"] - 7, "y": 5 * table["y"] + 1})
    assert not compiled, compiled
    asked = {"user": [1, 2, 99], "x": np.array([0.0, 1.0, 2.0]), "z": [0.0, 0.5, 1.0]}
    mine = run.predict(asked).columns["prediction"]
    same = other.predict(asked | {"x": 3 * asked["x"] - 7}).columns["prediction"]
    assert not compiled, compiled
    np.testing.assert_allclose(5 * mine + 1, same, rtol=1e-3)


def test_tables_of_like_shapes_share_programs(compiled):
    rng = np.random.default_rng(0)
    for n in (100, 120):
        compiled.clear()
        x = rng.normal(size=(n, 2))
        groups = np.array_split(rng.permutation(n), 20)
        fit_groups(x, x[:, 0], groups, shots=2, members=1, iterations=20, kinds=["pooled"], seed=n)
    assert not compiled, compiled


@pytest.mark.parametrize(("kind", "classes"), [("summary", None), ("head", None), ("steps", 3)])
def test_predictions_in_numpy_are_those_of_the_network(kind, classes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2))
    y = rng.normal(size=12) if classes is None else rng.integers(0, 3, 12).astype(np.int32)
    shape, at = Shape(2, classes), knots(x)
    made = parts(kind, shape, at)
    init = lambda key: made.adapt.init(made.init(key), Hyper(eta=0.0, alpha=0.1))
    metas = jax.vmap(init)(jax.random.split(jax.random.key(0), 2))
    model = TableModel(shape, at, {kind: jax.tree.map(np.asarray, metas)}, shots=4)
    groups = [np.arange(5), np.arange(5, 8)]
    which = np.array([0, 1, 1, 0])
    given = model.answers(model.personal(x, y, groups), which, x[8:])
    for i, rows in enumerate(groups):
        batch = Batch(x[rows], y[rows], np.ones(len(rows)))

        def one(meta, batch=batch, at=x[8:][which == i]):
            p = made.adapt.apply(meta, jax.tree.map(jax.numpy.asarray, batch), Hyper(eta=0.0))
            return made.answer(made.adapt.merge(meta, p), jax.numpy.asarray(at))

        wanted = np.mean(jax.vmap(one)(metas), axis=0)
        np.testing.assert_allclose(given[which == i], wanted, rtol=1e-9)
