"""`learner.personal`, `learner.fine_tune`: the models of single clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.errors import ConfigError, DataError
from moml.methods import fedavg
from moml.parts import named
from moml.training.clients import ClientScores, tuned_scores
from moml.training.personal import tuning_of

SIZES = [12, 5, 9, 3, 12]
RNG = np.random.default_rng(0)
pytestmark = pytest.mark.filterwarnings("ignore:a visit draws:moml.errors.MomlWarning")
X, Y = RNG.normal(size=(5, 12, 3)), RNG.integers(0, 2, (5, 12)).astype(np.int32)
TASKS = moml.from_arrays(X, Y, SIZES)
NET = moml.mlp(3, 4, 2)
LOSS = moml.cross_entropy(NET.predict)
GIVEN = {"tasks_per_step": 2, "k": 4, "local_steps": 2, "eta": 0.3, "alpha": 0.2}


def fit(name, iterations=8, **more):
    return moml.fit(
        name, LOSS, NET.init(jax.random.key(0)), TASKS, iterations=iterations, **GIVEN | more
    )


def equal(one, other, **close):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), one, other)


def descended(w, batch, rate):
    """w - rate grad L(w)."""
    return jax.tree.map(lambda w, g: w - rate * g, w, jax.grad(LOSS)(w, batch))


def test_ditto_keeps_whole_models():
    learner = fit("ditto", prox=0.5)
    known = np.flatnonzero(learner.state.memory.visits).tolist()
    for client in known:
        kept = learner.personal(client)
        equal(kept, jax.tree.map(lambda u, i=client: u[i], learner.state.memory.u))
        assert np.abs(kept.head.weight - learner.params.head.weight).max() > 1e-3


def test_memories_of_fedavg_are_used_as_far_as_mix_says():
    half, all_of_it = (fit("fedavg-memory", mix=mix) for mix in (0.5, 1.0))
    equal(half.params, all_of_it.params)
    client = int(np.flatnonzero(half.state.memory.visits)[0])
    memory = jax.tree.map(lambda u: u[client], half.state.memory.u)
    equal(all_of_it.personal(client), memory)
    mean = jax.tree.map(lambda w, u: (w + u) / 2, half.params, memory)
    equal(half.personal(client), mean, rtol=1e-6)
    assert np.abs(memory.head.weight - half.params.head.weight).max() > 1e-3


def test_with_beta_one_a_client_keeps_the_model_of_its_last_round():
    learner = fit("fedavg-memory", beta=1.0, tasks_per_step=5)  # all clients in every round
    mean = jax.tree.map(lambda u: u.mean(axis=0), learner.state.memory.u)
    equal(mean, learner.params, rtol=1e-6)  # w = mean w_i


@pytest.mark.parametrize("name", ["per-fedavg", "localmoml"])
def test_private_leaves_are_joined_with_the_common_ones(name):
    learner = fit(name, private="head", iterations=20)
    client = int(np.flatnonzero(learner.state.memory.visits)[0])
    kept = learner.personal(client)
    equal(kept.body, learner.params.body)
    stored = learner.state.memory.u.leaves.head
    equal(kept.head, jax.tree.map(lambda u: u[client], stored))
    assert np.abs(kept.head.weight - learner.params.head.weight).max() > 1e-6


def test_who_keeps_no_model_is_told_what_to_do():
    learner = fit("ditto", iterations=2)  # one round
    (never,) = np.flatnonzero(learner.state.memory.visits == 0)[:1]
    with pytest.raises(ConfigError, match=rf"client {never} keeps no model: .*fine_tune"):
        learner.personal(int(never))
    with pytest.raises(ConfigError, match="client must be a whole number from 0 to 4; got 5"):
        learner.personal(5)
    for name in ("fedavg", "localmoml", "maml"):
        more = {"local_steps": None} if name == "maml" else {}
        given = {k: v for k, v in (GIVEN | more).items() if v is not None}
        params = NET.init(jax.random.key(0))
        learner = moml.fit(name, LOSS, params, TASKS, iterations=2, **given)
        with pytest.raises(ConfigError, match=rf"{name} keeps no models of clients: .*fine_tune"):
            learner.personal(0)


def test_one_whole_batch_is_one_gradient_step():
    learner = fit("fedavg")
    mine = moml.Batch(X[0], Y[0])
    tuned = learner.fine_tune(mine, batch_size=12)
    by_hand = jax.tree.map(
        lambda w, g: w - 0.3 * g, learner.params, jax.grad(LOSS)(learner.params, mine)
    )
    equal(tuned, by_hand, rtol=1e-12, atol=1e-14)
    twice = learner.fine_tune(mine, batch_size=12, epochs=2, rate=0.1)
    w = learner.params
    for _ in range(2):
        w = jax.tree.map(lambda w, g: w - 0.1 * g, w, jax.grad(LOSS)(w, mine))
    equal(twice, w, rtol=1e-12, atol=1e-14)


def test_every_sample_is_used_once_in_an_epoch():
    """Of a loss that is linear in w, the steps of an epoch add up to the sum over all samples."""
    linear = lambda w, batch: jnp.mean(batch.x) * w
    x = np.arange(1.0, 13.0)
    tasks = moml.from_arrays(x.reshape(1, 12), x.reshape(1, 12))
    learner = moml.fit("fedavg", linear, jnp.array(0.0), tasks, iterations=1, tasks_per_step=1)
    batch = moml.Batch(x, x)
    for epochs in (1, 3):
        w = learner.fine_tune(batch, epochs=epochs, batch_size=4, rate=1.0)
        assert float(learner.params - w) == pytest.approx(epochs * x.sum() / 4)
    seeds = {float(learner.fine_tune(batch, batch_size=5, rate=1.0, seed=s)) for s in range(9)}
    assert len(seeds) > 1  # two samples are left out, others each time


def test_only_chosen_leaves_move():
    learner = fit("fedavg")
    tuned = learner.fine_tune(moml.Batch(X[0], Y[0]), leaves=named("head"))
    equal(tuned.body, learner.params.body)
    assert np.abs(tuned.head.weight - learner.params.head.weight).max() > 1e-3


def test_the_defaults_are_those_of_training():
    learner = fit("fedavg", local_epochs=2)
    mine = moml.Batch(X[0], Y[0])
    equal(learner.fine_tune(mine), learner.fine_tune(mine, epochs=2, batch_size=4, rate=0.3))
    assert (
        np.abs(
            learner.fine_tune(mine).head.bias - learner.fine_tune(mine, epochs=1).head.bias
        ).max()
        > 0
    )


@pytest.mark.parametrize(
    "given, kind, words",
    [
        ({"epochs": 0}, ConfigError, "epochs must be a whole number from 1"),
        ({"batch_size": 0}, ConfigError, "batch_size must be a whole number from 1"),
        ({"rate": -1.0}, ConfigError, "rate must be a number from 0"),
        ({"samples": moml.Batch(X[0], Y[0][:3])}, DataError, "the same first axis"),
        ({"rate": 1e300}, DataError, "not finite"),
    ],
)
def test_bad_fine_tuning(given, kind, words):
    learner = fit("fedavg", iterations=2)
    given = {"samples": moml.Batch(X[0], Y[0])} | given
    with pytest.raises(kind, match=words):
        learner.fine_tune(given.pop("samples"), **given)


def test_clients_side_by_side_are_fine_tuned_as_each_alone():
    """Of unequal clients, in batches of two: as a loop over them, whatever the order."""
    learner = fit("fedavg")
    score = lambda params, support, query: LOSS(params, query)
    used = tuning_of(learner.method, learner.hyper, 2, None, None)
    key, ids = jax.random.key(3), jnp.array([4, 1, 3, 0], jnp.int32)
    leaves = moml.parts.named("")
    found = {}
    for chunk in (1, 2, 9):
        by = ClientScores(TASKS, score, chunk)
        program = tuned_scores(learner.method, by, used, leaves)
        found[chunk] = program(learner.meta, TASKS, TASKS, key, used.rate, ids)
    equal(found[1], found[2], rtol=1e-12)
    equal(found[1], found[9], rtol=1e-12)
    # client 3 has three samples, fewer than a batch of 4: two steps of them all, one repeated
    rows = moml.tasks.sampler.draw_epochs(jax.random.fold_in(key, 3), TASKS, jnp.array([3]), 2, 4)
    assert rows[1].tolist() == [2] and set(rows[0][0, :2].ravel().tolist()) == {0, 1, 2}
    w = learner.params
    for step in rows[0][0, :2]:
        batch = moml.Batch(X[3][step], Y[3][step])
        w = descended(w, batch, 0.3)
    assert float(found[2][2]) == pytest.approx(float(LOSS(w, moml.Batch(X[3, :3], Y[3, :3]))))


def test_a_method_composed_by_hand_has_its_loss():
    assert fedavg(LOSS, n=5).loss is LOSS
