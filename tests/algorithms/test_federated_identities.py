"""Free oracles of the federated methods: each is another one at the edge of its range."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from moml.algorithms.single.matching import match_beta, match_restart
from moml.methods import method
from moml.types import Hyper
from tests.algorithms.common import (
    HYPER,
    B,
    K,
    N,
    assert_close,
    at,
    flat,
    loss,
    precisions,
    run,
    sigmoid_world,
    visits_of,
)


def compose(name: str, **options: Any) -> Any:
    return method(name, loss, **{"n": N, "k": K, "tasks_per_step": B, "local_steps": 3} | options)


def hyper_of(dtype: Any, **numbers: float) -> Hyper:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), HYPER._replace(**numbers))


def trained(m: Any, dtype: Any, steps: int, *, one: bool = False, **numbers: float) -> Any:
    """The last state, and the server's model after every round, or all rounds of `one` client."""
    world, hyper = sigmoid_world(dtype), hyper_of(dtype, **numbers)
    visits = visits_of(m.algorithm.needs, world.tasks, steps)
    if one:
        visits = visits._replace(ids=np.zeros_like(visits.ids))
    state, metas, _ = run(m.algorithm, m.algorithm.init(world.params, hyper), visits, hyper)
    return state, metas


def moved(metas: np.ndarray, dtype: Any) -> np.ndarray:
    """The same models, which are not all the first one."""
    assert np.abs(metas - flat(sigmoid_world(dtype).params)).max() > 1e-2
    return metas


@precisions
def test_fedprox_without_a_pull_is_fedavg(dtype, rtol, steps):
    ours, theirs = compose("fedprox", dropout=0.3), compose("fedavg", dropout=0.3)
    assert ours.algorithm.needs == theirs.algorithm.needs
    want = moved(trained(theirs, dtype, steps)[1], dtype)
    assert_close(trained(ours, dtype, steps, prox=0.0)[1], want, rtol)
    assert np.abs(trained(ours, dtype, steps, prox=0.1)[1] - want).max() > 1e-4


@precisions
def test_scaffold_of_one_client_is_fedavg(dtype, rtol, steps):
    """c is c_1, so that nothing is corrected."""
    alone = {"n": 1, "tasks_per_step": 1, "straggle": 0.5}
    state, path = trained(compose("scaffold", **alone), dtype, steps, one=True)
    want = moved(trained(compose("fedavg", **alone), dtype, steps, one=True)[1], dtype)
    assert_close(path, want, rtol)
    assert np.abs(flat(state.server)).max() > 1e-3
    assert_close(flat(state.server), flat(at(state.memory.u, 0)), rtol)


@precisions
def test_the_first_round_of_scaffold_is_fedavg(dtype, rtol, steps):
    ours, theirs = (trained(compose(name), dtype, 2)[1] for name in ("scaffold", "fedavg"))
    assert_close(ours[0], theirs[0], rtol)
    assert np.abs(ours[1] - theirs[1]).max() > 1e-4


@precisions
@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_what_the_server_keeps_is_the_mean_of_what_clients_keep(dtype, rtol, steps, name):
    """Also of those that have not been there yet, who keep 0."""
    state, _ = trained(compose(name, dropout=0.3, straggle=0.3), dtype, steps)
    rows = flat(state.memory.u, 1)
    assert_close(flat(state.server), rows.mean(axis=0), 10 * rtol)
    assert np.abs(rows).max() > 1e-2


@precisions
def test_feddyn_begins_twice_as_far_as_fedprox(dtype, rtol, steps):
    """h = -a (mean - w), so w <- w + 2 (mean - w) where all take part."""
    all_ = {"tasks_per_step": N}
    first = flat(sigmoid_world(dtype).params)
    near = moved(trained(compose("fedprox", **all_), dtype, 1, prox=0.8)[1], dtype)[0]
    ours = trained(compose("feddyn", **all_), dtype, 1, prox=0.8)[1][0]
    assert_close(ours, first + 2 * (near - first), rtol)


@precisions
def test_feddyn_of_one_step_is_optimistic_descent(dtype, rtol, steps):
    """With a = 1 / eta the h_i are the last gradients: w <- w - 2 eta g_t + eta g_(t-1)."""
    all_ = {"tasks_per_step": N, "local_steps": 1}
    twice = lambda g, last, _: (jax.tree.map(lambda g, last: last - 2 * g, g, last), g)
    ahead = optax.GradientTransformation(optax.tree.zeros_like, twice)
    want = moved(trained(compose("fedavg", optimizer=ahead, **all_), dtype, steps)[1], dtype)
    ours = trained(compose("feddyn", **all_), dtype, steps, prox=1 / HYPER.eta)[1]
    assert_close(ours, want, rtol)


@precisions
def test_fedavgm_without_momentum_is_fedavg(dtype, rtol, steps):
    want = moved(trained(compose("fedavg", dropout=0.3), dtype, steps)[1], dtype)
    assert_close(trained(compose("fedavgm", dropout=0.3), dtype, steps, b1=0.0)[1], want, rtol)


@precisions
def test_fedavgm_is_fedavg_with_the_optimizer_sgd(dtype, rtol, steps):
    sgd = optax.sgd(0.6, momentum=0.7)
    want = moved(trained(compose("fedavg", optimizer=sgd, dropout=0.3), dtype, steps)[1], dtype)
    numbers = {"server_rate": 0.6, "b1": 0.7}
    ours = trained(compose("fedavgm", dropout=0.3), dtype, steps, **numbers)[1]
    assert_close(ours, want, rtol)


@precisions
@pytest.mark.parametrize("name", ["fedadam", "fedyogi"])
def test_an_adaptive_server_that_stays_at_tau_is_fedavgm(dtype, rtol, steps, name):
    """With b2 = 1 v stays at tau^2, and FedAdam's m is 1 - b1 of FedAvgM's."""
    b1, tau, rate = 0.6, 0.25, 0.8
    want = trained(compose("fedavgm", dropout=0.3), dtype, steps, b1=b1, server_rate=rate)[1]
    numbers = {"b1": b1, "b2": 1.0, "tau": tau, "server_rate": rate * 2 * tau / (1 - b1)}
    ours = trained(compose(name, dropout=0.3), dtype, steps, **numbers)[1]
    assert_close(ours, moved(want, dtype), rtol)


@precisions
def test_fedadam_without_momentum_is_fedavg_with_rmsprop(dtype, rtol, steps):
    tau, rate, b2 = 0.05, 0.1, 0.8
    scale = optax.scale_by_rms(b2, tau, initial_scale=tau**2, eps_in_sqrt=False)
    optimizer = optax.chain(scale, optax.scale(-rate))
    want = moved(trained(compose("fedavg", optimizer=optimizer), dtype, steps)[1], dtype)
    numbers = {"b1": 0.0, "b2": b2, "tau": tau, "server_rate": rate}
    assert_close(trained(compose("fedadam"), dtype, steps, **numbers)[1], want, rtol)


@precisions
def test_local_of_one_client_is_fedavg(dtype, rtol, steps):
    """Its model is at the client; the server's is the first one, whatever happens."""
    alone = {"n": 1, "tasks_per_step": 1, "straggle": 0.5, "dropout": 0.2}
    m = compose("local", **alone)
    state, path = trained(m, dtype, steps, one=True)
    want = moved(trained(compose("fedavg", **alone), dtype, steps, one=True)[1], dtype)
    rounds = m.algorithm.rounds
    assert rounds is not None and rounds.kept is not None
    own = rounds.kept(state.meta, at(state.memory.u, 0))
    assert_close(flat(own), want[-1], rtol)
    first = flat(sigmoid_world(dtype).params)
    assert np.array_equal(path, np.broadcast_to(first, path.shape))


def test_localmoml_matches_its_beta_to_the_shots():
    """Restarted by the noise of a round, carried by that of a long average; a given one stays."""
    of = lambda **given: method("localmoml", loss, n=N, k=1, local_steps=10, **given).hyper.beta
    restart = {"local_steps": 10, "restart_samples": 2}
    assert of(shots=5) == match_restart(1, 5, **restart) < 1
    assert of(shots=5, restart_samples=1) == match_restart(1, 5, **restart | {"restart_samples": 1})
    assert of(shots=5, carried=True) == match_beta(1, 5)
    assert of(shots=5, carried=True, test_steps=10) == match_beta(1, 5, steps=10)
    assert of(shots=1) == of(shots=1, carried=True) == 1
    assert of() == of(shots=5, local_epochs=2) == 0.3
    assert of(shots=5, beta=0.7) == 0.7
