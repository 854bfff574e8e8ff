"""Optimizers with their learning rate inside, of eta, and of a server."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import moml
from moml.errors import ConfigError
from moml.methods import METHODS, fedavg, maml, method, pfedme
from moml.training.compose import compose, hyper_of
from tests.algorithms.common import B, K, N, assert_close, loss, run, sigmoid_world, visits_of


def path(chosen, steps=5, **numbers):
    world = sigmoid_world()
    hyper = hyper_of(chosen, world.params, numbers)
    visits = visits_of(chosen.algorithm.needs, world.tasks, steps)
    state = chosen.algorithm.init(world.params, hyper)
    return run(chosen.algorithm, state, visits, hyper._replace(eta=hyper._asdict().get("eta", 0.0)))


def test_a_transformation_has_its_rate_inside():
    whole = maml(loss, n=N, k=K, tasks_per_step=B, optimizer=optax.sgd(0.1))
    of_eta = maml(loss, n=N, k=K, tasks_per_step=B, optimizer=optax.sgd, eta=0.1)
    assert not hasattr(whole.hyper, "eta") and of_eta.hyper.eta == 0.1
    assert_close(path(whole)[1], path(of_eta)[1], 1e-15)


def test_eta_beside_a_transformation_is_refused():
    with pytest.raises(ConfigError, match="eta is given; got a transformation"):
        maml(loss, optimizer=optax.sgd(0.1), eta=0.1)
    whole = maml(loss, optimizer=optax.sgd(0.1))
    with pytest.raises(ConfigError, match="eta is given; got a transformation"):
        hyper_of(whole, np.zeros(()), {"eta": 0.1})


def test_a_server_may_have_an_optimizer():
    shape = {"n": N, "k": K, "tasks_per_step": B, "local_steps": 2, "eta": 0.3}
    plain, as_mean = fedavg(loss, **shape), fedavg(loss, **shape, optimizer=optax.sgd(1.0))
    assert_close(path(as_mean)[1], path(plain)[1], 1e-12)
    state, metas, _ = path(fedavg(loss, **shape, optimizer=optax.sgd(1.0, momentum=0.5)))
    assert jax.tree.leaves(state.server)
    assert np.abs(metas - path(plain)[1]).max() > 1e-3


def test_a_number_of_a_method_is_traced():
    chosen = pfedme(loss, n=N, k=K, tasks_per_step=B, prox_steps=2)
    ends = [path(chosen, prox=prox, alpha=0.01, eta=0.1)[1][-1] for prox in (1.0, 5.0)]
    assert np.abs(ends[0] - ends[1]).max() > 1e-6
    with pytest.raises(ConfigError, match=r"prox must be positive; got -1\.0"):
        hyper_of(chosen, jnp.zeros(()), {"prox": -1.0})


def test_compose_takes_a_name_a_function_or_a_method():
    tasks = sigmoid_world().tasks
    named = compose("moml-v1", loss, tasks, {"beta": 0.2}, 10)
    made = compose(METHODS["moml-v1"], loss, tasks, {"beta": 0.2}, 10)
    again = compose(named, loss, tasks, {"eta": 0.1}, 10)
    assert named.name == made.name == again.name == "moml-v1"
    assert (again.hyper.eta, again.hyper.beta) == (0.1, 0.2)
    with pytest.raises(ConfigError, match="numbers to set; got k"):
        compose(named, loss, tasks, {"k": 2}, 10)
    with pytest.raises(ConfigError, match=r"method must be one of maml, .*; got 'mmol'"):
        method("mmol", loss)


@pytest.mark.parametrize("name", ["maml", "fedavg"])
def test_a_direction_is_refused(name):
    with pytest.raises(ConfigError, match="must move against the gradient"):
        method(name, loss, n=N, optimizer=optax.scale_by_adam())


def test_what_gives_no_transformation_is_refused():
    for wrong in (lambda: 3, lambda eta: 3):
        with pytest.raises(ConfigError, match="optimizer must give an optax transformation"):
            maml(loss, optimizer=wrong)


def test_none_is_the_default():
    assert maml(loss, eta=None, alpha=None).hyper == maml(loss).hyper


def test_a_partial_is_a_factory():
    world, two = sigmoid_world(), partial(maml, k=2)
    assert compose(two, loss, world.tasks, {"eta": 0.3}, 10).k == 2
    with pytest.raises(ConfigError, match=r"must return a moml\.parts\.Method"):
        compose(lambda loss, *, n=None: None, loss, world.tasks, {}, 10)


def test_a_schedule_of_eta_needs_eta():
    net = moml.mlp(1, 4, 1)
    given = moml.mse(net.predict), net.init(jax.random.key(0)), moml.sine()
    with pytest.raises(ConfigError, match="schedule must use numbers of the method"):
        moml.fit("maml", *given, optimizer=optax.adam(1e-3), schedule=moml.parts.decay_at(5))
