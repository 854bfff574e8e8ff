"""What rounds cost, worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.signature import keywords
from moml.errors import ConfigError
from moml.methods import METHODS, method
from moml.runtime.account import cost, spending, turnouts
from moml.tasks.sampler import draw
from moml.types import Turnout
from tests.algorithms.common import loss, sigmoid_world

META = {"body": jnp.zeros((3, 4), jnp.float32), "head": jnp.zeros(2, jnp.float64)}  # 48 + 16 bytes
SHAPE = {"n": 7, "tasks_per_step": 3, "k": 2, "local_steps": 4}
TURNOUT = Turnout(
    jnp.array([True, False, True]), jnp.array([4, 4, 1], jnp.int32), jnp.ones(3, jnp.int32)
)


@pytest.mark.parametrize(
    "name, options, gradients, products, samples",
    [
        # A(w; S1) and the gradient at u', 4 times; the restart from K0 = 2K samples
        ("localmoml", {"curvature": "first-order"}, 4 * 2 + 1, 0, 4 * 4 + 4),
        ("localmoml", {}, 4 * 2 + 1, 4, 4 * 4 + 4),
        ("localmoml", {"restart_samples": 5}, 4 * 2 + 1, 4, 4 * 4 + 5),
        ("localmoml", {"carried": True}, 4 * 2, 4, 4 * 4),
        ("localmoml", {"inner_steps": 3}, 4 * 4 + 3, 12, 4 * 4 + 4),
        ("per-fedavg", {}, 4 * 2, 4, 4 * 4),
        ("per-fedavg", {"independent_hessian": True}, 4 * 3, 4, 4 * 6),  # A(w; S2) as well
        ("per-fedavg", {"curvature": "first-order"}, 4 * 2, 0, 4 * 4),
        ("per-fedavg", {"curvature": "finite-difference"}, 4 * 4, 0, 4 * 4),  # ahead and behind
        ("pfedme", {"prox_steps": 7}, 4 * 7, 0, 4 * 2),
        ("fedavg", {}, 4, 0, 4 * 2),
        ("ditto", {}, 4 * 2, 0, 4 * 2),  # of w and of u, on the same samples
        ("fedprox", {}, 4, 0, 4 * 2),
        ("feddyn", {}, 4, 0, 4 * 2),
        ("fedavgm", {}, 4, 0, 4 * 2),
        ("fedadam", {}, 4, 0, 4 * 2),
        ("fedyogi", {}, 4, 0, 4 * 2),
    ],
)
def test_a_round_where_all_answer(name, options, gradients, products, samples):
    got = cost(method(name, loss, **SHAPE, **options), META)
    assert (got.down, got.up) == (3 * 64, 3 * 64)
    assert got.gradients.tolist() == [gradients] * 3
    assert got.products.tolist() == [products] * 3
    assert got.samples.tolist() == [samples] * 3


@pytest.mark.parametrize(
    "name, options, size",
    [
        ("scaffold", {}, 2 * 64),  # w and c down, w_i and the change of c_i up
        ("local", {}, 0),
        ("per-fedavg", {"private": "head"}, 48),
        ("localmoml", {"private": "body", "carried": True}, 16),
    ],
)
def test_bytes_are_those_of_shared_leaves_and_of_what_else_is_sent(name, options, size):
    m = method(name, loss, **SHAPE, **options)
    got, lossy = cost(m, META), cost(m, META, TURNOUT)
    assert (got.down, got.up) == (3 * size, 3 * size)
    assert (lossy.down, lossy.up) == (3 * size, 2 * size)


EPOCHS = {"n": 7, "tasks_per_step": 3, "local_epochs": 2, "batch_size": 4}


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_epochs_cost_what_each_client_does(dropout):
    """Gradients and samples by the clients' own sizes, drawn again from the key."""
    sizes = (12, 3, 7, 5, 12, 9, 4)
    tasks, key = sigmoid_world(sizes=sizes).tasks, jax.random.key(3)
    m = method("per-fedavg", loss, **EPOCHS | {"batch_size": 2}, dropout=dropout)
    ids = [draw(jax.random.fold_in(key, t), m.algorithm.needs, tasks).ids for t in range(10)]
    steps = np.array([[2 * max(sizes[i] // 4, 1) for i in each] for each in ids])  # S1 and S3
    assert {2, 4, 6} == set(steps.ravel().tolist())
    who = turnouts(m, tasks, key, 10)
    got = cost(m, META, who)
    assert got.gradients.tolist() == (2 * steps).tolist()
    assert got.products.tolist() == steps.tolist()
    assert got.samples.tolist() == (4 * steps).tolist()
    assert got.up.tolist() == (64 * np.asarray(who.present).sum(axis=1)).tolist()
    run = spending(m, META, tasks, key)(2, 5)
    assert run.gradients == 2 * steps[2:7].sum() and run.samples == 4 * steps[2:7].sum()
    assert run.down == 5 * 3 * 64


def test_epochs_of_equal_clients_cost_alike():
    tasks, key = sigmoid_world().tasks, jax.random.key(3)  # 12 samples each
    m = method("fedavg", loss, **EPOCHS)
    run = spending(m, META, tasks, key)(0, 5)
    assert run.gradients == 5 * 3 * 6 and run.samples == 5 * 3 * 6 * 4
    late = method("fedavg", loss, **EPOCHS, straggle=1.0)
    steps = np.asarray(turnouts(late, tasks, key, 5).steps)
    assert steps.max() < 6 and spending(late, META, tasks, key)(0, 5).gradients == steps.sum()
    with pytest.raises(ConfigError, match="turnout, or the samples of each client"):
        cost(m, META)


def test_who_is_lost_costs_the_way_down_and_who_is_late_works_less():
    got = cost(method("localmoml", loss, **SHAPE), META, TURNOUT)
    assert (got.down, got.up) == (3 * 64, 2 * 64)
    assert got.gradients.tolist() == [9, 9, 2 + 1]
    assert got.products.tolist() == [4, 4, 1]
    assert got.samples.tolist() == [20, 20, 4 + 4]


def test_many_rounds_at_once_are_those_that_a_run_draws():
    m = method("fedavg", loss, **SHAPE, dropout=0.5, straggle=0.5)
    tasks, key = sigmoid_world().tasks, jax.random.key(3)
    many = turnouts(m, tasks, key, 10)
    got = cost(m, META, many)
    present, steps = np.asarray(many.present), np.asarray(many.steps)
    assert got.down.tolist() == [192] * 10
    assert got.up.tolist() == (64 * present.sum(axis=1)).tolist()
    assert got.gradients.tolist() == steps.tolist()
    assert 0 < present.mean() < 1 and 1 < steps.mean() < 4
    again = turnouts(m, tasks, key, 4)  # a round's clients depend on its number alone
    np.testing.assert_array_equal(again.steps, steps[:4])
    assert turnouts(method("fedavg", loss, **SHAPE), tasks, key, 4) is None


def test_bytes_may_exceed_32_bits():
    m = method("fedavg", loss, tasks_per_step=100)
    w = jax.ShapeDtypeStruct((25_000_000,), jnp.float32)
    assert int(cost(m, w).down) == 10**10


def test_what_has_no_rounds_costs_nothing_to_send():
    with pytest.raises(ConfigError, match="maml has no rounds"):
        cost(method("maml", loss), META)
    for name, factory in METHODS.items():
        given = {"features": loss} if "features" in keywords(factory) else {}
        made = factory(loss, n=4, **given | ({"shots": 1} if name == "moml" else {}))
        assert (made.work is not None) == ("local_steps" in made.options)
