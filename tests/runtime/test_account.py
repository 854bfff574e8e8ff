"""What rounds cost, worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.signature import keywords
from moml.errors import ConfigError
from moml.methods import METHODS, method
from moml.runtime.account import cost, turnouts
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
    ],
)
def test_a_round_where_all_answer(name, options, gradients, products, samples):
    got = cost(method(name, loss, **SHAPE, **options), META)
    assert (got.down, got.up) == (3 * 64, 3 * 64)
    assert got.gradients.tolist() == [gradients] * 3
    assert got.products.tolist() == [products] * 3
    assert got.samples.tolist() == [samples] * 3


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
