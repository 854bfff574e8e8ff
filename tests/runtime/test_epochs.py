"""Rounds of local epochs are a plain loop over clients and their shuffled samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.errors import ConfigError
from moml.methods import method
from moml.tasks.sampler import draw
from tests.algorithms.common import HYPER, K, N, T, assert_close, data, flat, sigmoid_world
from tests.reference.problem import SIGMOID
from tests.runtime.test_rounds import KEY, METHODS, SIZES, check, compose, simulated
from tests.support.often import often

EPOCHS = {"local_epochs": 2, "batch_size": 4, "k": None, "local_steps": None}


@pytest.mark.parametrize(
    "name", often(METHODS, {"fedavg", "localmoml carried", "scaffold", "fedrep"})
)
def test_every_method_with_epochs_is_a_loop_over_clients(name):
    recipe, options, slow = METHODS[name]
    busy = {"dropout": 0.3, "straggle": 0.3, "weighted": True, "at_once": 2}
    check(compose(recipe, **options, **EPOCHS, **busy), slow)


def test_by_row_numbers():
    """From the numbers that are drawn to the model, without the library's own fetch."""
    m = compose("fedavg", **EPOCHS, weighted=True, tasks_per_step=N)
    x, y = data()
    world, w = sigmoid_world(sizes=SIZES), flat(sigmoid_world().params)
    path = []
    for t in range(T):
        visit = draw(jax.random.fold_in(jax.random.key(KEY), t), m.algorithm.needs, world.tasks)
        ids, rows = np.asarray(visit.ids), np.asarray(visit.task.support)
        total = np.zeros_like(w)
        for i, own in zip(ids, rows, strict=True):
            w_i = w
            for batch in own[: 2 * max(SIZES[i] // 4, 1)]:
                w_i = w_i - HYPER.eta * SIGMOID.grad(w_i, (x[i, batch], y[i, batch]))
            total = total + SIZES[i] * w_i
        w = total / sum(SIZES)
        path.append(w)
    assert_close(simulated(m)[0], np.stack(path), 1e-12)


def hyper() -> Any:
    return jax.tree.map(jnp.asarray, HYPER)


def equal_clients(**options: Any) -> np.ndarray:
    """Models of FedAvg over 10 rounds of clients that all have 12 samples."""
    tasks, loss, params = sigmoid_world()
    given = {"n": N, "tasks_per_step": 3, "local_epochs": 2} | options
    m = method("fedavg", loss, **given)
    state, path = m.algorithm.init(params, hyper()), []
    step = jax.jit(m.algorithm.step)
    for t in range(10):
        visit = draw(jax.random.fold_in(jax.random.key(KEY), t), m.algorithm.needs, tasks)
        task = visit.task._replace(support=tasks.fetch(visit.ids, visit.task.support))
        state, _ = step(state, visit._replace(task=task), hyper())
        path.append(flat(state.meta))
    return np.stack(path)


def test_clients_of_equal_sizes_go_the_same_way_with_and_without_weights():
    assert_close(equal_clients(batch_size=5, weighted=True), equal_clients(batch_size=5), 1e-12)


def test_one_batch_an_epoch_is_descent_on_all_samples():
    """Whatever the order of samples is: E epochs are E full gradient steps."""
    x, y = data()
    w, path = flat(sigmoid_world().params), []
    for _ in range(10):
        models = []
        for i in range(N):
            w_i = w
            for _ in range(2):
                w_i = w_i - HYPER.eta * SIGMOID.grad(w_i, (x[i], y[i]))
            models.append(w_i)
        w = np.mean(models, axis=0)
        path.append(w)
    assert_close(equal_clients(batch_size=12, tasks_per_step=N), np.stack(path), 1e-12)


def test_k_and_batch_size_are_one_number():
    by_k, by_size = (compose("fedavg", **EPOCHS | {"k": 4, "batch_size": b}) for b in (None, 4))
    assert by_k.algorithm.needs == by_size.algorithm.needs
    assert by_k.k == by_size.k == compose("fedavg", **EPOCHS).k == 4
    with pytest.raises(ConfigError, match="same number; got 2 and 4"):
        compose("fedavg", **EPOCHS | {"k": K})


def test_batch_size_also_without_epochs():
    m = compose("localmoml", k=None, batch_size=3)
    need = m.algorithm.needs
    assert (need.support, need.query, need.restart, need.visits) == (3, 3, 6, 4)
    assert m.options["k"] == 3


def test_an_epoch_may_have_stragglers_where_one_step_may_not():
    assert compose("fedavg", **EPOCHS, straggle=0.5).algorithm.needs.straggle == 0.5
    with pytest.raises(ConfigError, match="local_steps of at least 2"):
        compose("fedavg", local_steps=1, straggle=0.5)
