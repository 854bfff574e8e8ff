from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import moml
from moml.errors import ConfigError, DataError, Diverged
from moml.runtime import simulate
from moml.training.compose import init_key
from moml.types import Hyper
from tests.support.often import often

NET = moml.mlp(1, 8, 1, activation=jnp.tanh)
LOSS = moml.mse(NET.predict)


def start(seed=0):
    return NET.init(init_key(seed))


def fit(name="moml-v1", **given):
    return moml.fit(name, LOSS, start(), moml.sine(), **({"iterations": 40} | given))


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_prototypes_learn_an_embedding():
    """Classes differ in one of ten inputs, by little; the other nine are noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 60, 10))
    y = rng.integers(0, 2, (40, 60)).astype(np.int32)
    x[..., 0] = 0.3 * x[..., 0] + 1.5 * y
    net = moml.mlp(10, 8, 2)
    loss, tasks = moml.cross_entropy(net.predict), moml.from_arrays(x[:30], y[:30])
    train = partial(
        moml.fit, "protonet", loss, net.init(jax.random.key(0)), tasks, k=10, eta=0.01,
        features=net.features,
    )  # fmt: skip
    unseen, right = moml.from_arrays(x[30:], y[30:]), moml.accuracy(net.predict)
    score = lambda who: float(jnp.mean(moml.evaluate(who, right, unseen, shots=10)))
    assert score(train(iterations=500)) > 5 + score(train(iterations=1))


OFTEN = {"maml", "moml-v1", "moml-v2", "localmoml", "pfedme", "moml"}  # the others with test-slow
OPTIONS = {
    "moml": {"shots": 5},
    "pfedme": {"prox": 10.0},
    "bspiderboost": {"eta": 0.02},
    "feddyn": {"prox": 1.0},
    "fedbn": {"private": "bias"},  # the network has no norm
    "feddbe": {"features": NET.features, "kappa": 1.0},
}
ELSEWHERE = {"protonet", "local"}  # of classes only; no common model: its clients learn alone


@pytest.mark.parametrize(
    "name", often([name for name in moml.methods.METHODS if name not in ELSEWHERE], OFTEN)
)
def test_every_method_learns_to_adapt(name):
    options = OPTIONS.get(name, {})
    learner = fit(name, iterations=3000, k=3, alpha=0.05, **options)
    test = moml.unseen_sine(jax.random.key(1), 50)
    untrained = fit("maml", iterations=1, alpha=0.05)
    score = lambda who: float(jnp.mean(moml.evaluate(who, LOSS, test, shots=10, steps=3)))
    assert score(learner) < 0.9 * score(untrained)
    assert learner.samples > 0
    assert np.isfinite(learner.history).all()


@pytest.mark.parametrize(
    "name",
    often(
        ["moml-v1", "moml-v2", "localmoml", "ditto", "bspiderboost", "nasa"],
        ["moml-v2", "localmoml", "bspiderboost"],
    ),
)
def test_a_run_does_not_depend_on_its_chunks(name):
    whole, pieces = (fit(name, chunk=chunk) for chunk in (40, 7))
    pairs = zip(jax.tree.leaves(whole.state), jax.tree.leaves(pieces.state), strict=True)
    for x, y in pairs:  # XLA may round the last bit otherwise where a stretch has one step
        np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(whole.history, pieces.history, rtol=1e-13)


def test_seeds_differ_and_repeat():
    same(fit(seed=1).meta, fit(seed=1).meta)
    assert not np.array_equal(fit(seed=1).history, fit(seed=2).history)


def test_one_trace_per_program():
    method = moml.methods.method("moml-v1", LOSS, n=25)
    traced = eqx.debug.assert_max_traces(max_traces=1)(method.algorithm.step)
    algorithm = method.algorithm._replace(step=traced)
    program = simulate.program(algorithm)
    key = jax.random.key(0)
    for eta, beta in [(0.1, 0.5), (0.01, 0.3), (0.2, 1.0)]:
        hyper = jax.tree.map(jnp.asarray, Hyper(eta=eta, beta=beta, alpha=0.01))
        state = jax.jit(algorithm.init)(start(), hyper)
        for begin in (0, 10, 20):
            state, _ = program(state, moml.sine(), key, begin, hyper, 10 - begin // 10, 10)


def test_a_plain_function_an_equinox_module_and_arrays():
    x = np.random.default_rng(0).normal(size=(6, 20, 2))
    slope = np.random.default_rng(1).normal(size=(6, 1, 2))
    tasks = moml.from_arrays(x, (x * slope).sum(axis=-1, keepdims=True))

    def plain(params, batch):
        return jnp.mean((batch.x @ params["w"] - batch.y) ** 2)

    learner = moml.fit("maml", plain, {"w": np.zeros((2, 1))}, tasks, iterations=50, alpha=0.1)
    mine = learner.adapt(moml.Batch(jnp.asarray(x[0]), jnp.asarray(x[0] @ slope[0].T)), steps=200)
    np.testing.assert_allclose(mine["w"], slope[0].T, atol=1e-2)

    net = moml.from_equinox(lambda key: eqx.nn.Linear(2, 1, key=key))
    params, leaves = net.init(jax.random.key(0)), moml.parts.named("weight")
    learner = moml.fit("anil", moml.mse(net.predict), params, tasks, iterations=20, leaves=leaves)
    moved = learner.adapt(moml.Batch(jnp.asarray(x[0]), jnp.asarray(x[0] @ slope[0].T)))
    same(moved.bias, learner.params.bias)
    assert not np.array_equal(moved.weight, learner.params.weight)


def test_a_flax_module():
    linen = pytest.importorskip("flax.linen")
    net = linen.Dense(1, param_dtype=jnp.float64)
    params = net.init(jax.random.key(0), jnp.zeros((1, 1)))
    learner = moml.fit("moml", moml.mse(net.apply), params, moml.sine(), iterations=20, shots=5)
    assert learner.history.shape == (20,)


def test_closed_form_head_fits_by_name():
    adapt = moml.parts.closed_form(NET.features, lambda params: params.head)
    learner = fit("moml", iterations=500, k=5, shots=10, adapt=lambda steps: adapt, eta=0.01)
    test = moml.unseen_sine(jax.random.key(1), 50)
    errors = moml.evaluate(learner, LOSS, test, shots=10)
    untrained = fit("moml", iterations=1, k=5, shots=10, adapt=lambda steps: adapt)
    assert jnp.mean(errors) < jnp.mean(moml.evaluate(untrained, LOSS, test, shots=10))


def test_eager_filling_visits_every_task():
    for name in ("moml-v1", "moml-v2"):
        learner = fit(name, iterations=1, eager=True)
        u, known = learner.method.memory.recall(learner.state.memory, jnp.arange(25))
        assert bool(known.all())
        assert all(float(jnp.abs(leaf).sum(axis=tuple(range(1, leaf.ndim))).min()) > 0
                   for leaf in jax.tree.leaves(u))  # fmt: skip


def test_float32_stays_float32():
    params = jax.tree.map(lambda x: x.astype(jnp.float32), start())
    x = np.zeros((4, 5, 1), np.float32)
    learner = moml.fit("moml", LOSS, params, moml.from_arrays(x, x), iterations=5, shots=5)
    assert {leaf.dtype for leaf in jax.tree.leaves(learner.meta)} == {jnp.dtype("float32")}


def test_divergence_names_itself_and_keeps_what_it_had():
    late = lambda hyper, t: hyper._replace(eta=jnp.where(t < 120, hyper.eta, 1e30))
    with pytest.raises(Diverged) as caught:
        fit("maml", schedule=late, iterations=400, chunk=50, seed=3, k=2)
    message = str(caught.value)
    assert "maml" in message
    assert "seed 3" in message
    assert "step" in message
    assert 120 <= int(message.split("step ")[1].split()[0]) < 150
    kept = caught.value.learner
    assert len(kept.history) == 100
    assert kept.samples == 100 * 3 * 4
    same(kept.meta, fit("maml", iterations=100, seed=3, k=2).meta)


def test_schedules_act_at_their_step():
    early = fit(schedule=moml.parts.decay_at(20, 0.0), iterations=20)
    late = fit(schedule=moml.parts.decay_at(20, 0.0), iterations=40)
    same(early.meta, late.meta)


@pytest.mark.parametrize(
    "support, words",
    [
        ((np.zeros((3, 1)), np.zeros((3, 1))), "cannot adapt"),
        (moml.Batch(np.zeros((3, 2)), np.zeros((3, 1))), "cannot adapt"),
        (moml.Batch(np.full((3, 1), np.nan), np.zeros((3, 1))), "not finite"),
    ],
)
def test_bad_support(support, words):
    with pytest.raises(DataError, match=words):
        fit(iterations=1).adapt(support)


def test_bad_evaluations():
    learner = fit(iterations=1)
    wide = moml.from_arrays(np.zeros((3, 12, 2)), np.zeros((3, 12, 1)))
    narrow = moml.from_arrays(np.zeros((3, 12, 1)), np.zeros((3, 12, 1)))
    for tasks, shots, kind in [
        (wide, 5, DataError),
        (narrow, 12, ConfigError),
    ]:
        with pytest.raises(kind):
            moml.evaluate(learner, LOSS, tasks, shots=shots)
    assert moml.evaluate(learner, LOSS, narrow, shots=5).shape == (3,)
    with pytest.raises(ConfigError, match="smallest task"):
        moml.evaluate(learner, LOSS, narrow, shots=5, queries=10)


def test_targets_that_would_broadcast_are_refused():
    with jax.numpy_rank_promotion("allow"):
        flat = moml.from_arrays(np.zeros((3, 12, 1)), np.zeros((3, 12)))
        with pytest.raises(DataError, match="targets"):
            moml.fit("maml", LOSS, start(), flat, k=4)


BAD = [
    ({"name": "nosuch"}, ConfigError, ["nosuch", "moml-v1"]),
    ({"k": 0}, ConfigError, ["k", "0"]),
    ({"tasks_per_step": 26}, ConfigError, ["26", "25"]),
    ({"eta": -0.1}, ConfigError, ["eta", "-0.1"]),
    ({"eta": float("nan")}, ConfigError, ["eta", "nan"]),
    ({"alpha": -1.0}, ConfigError, ["alpha", "-1"]),
    ({"beta": 0.0}, ConfigError, ["beta", "(0, 1]"]),
    ({"beta": 1.1}, ConfigError, ["beta", "(0, 1]", "1.1"]),
    ({"name": "nasa", "gamma": 2.0}, ConfigError, ["gamma", "(0, 1]"]),
    ({"iterations": 0}, ConfigError, ["iterations", "0"]),
    ({"seed": -1}, ConfigError, ["seed", "-1"]),
    ({"curvature": "none"}, ConfigError, ["none", "first-order"]),
    ({"period": 2}, ConfigError, ["moml-v1", "period"]),
    ({"nonsense": 2}, ConfigError, ["nonsense", "tasks_per_step"]),
    ({"name": "moml"}, ConfigError, ["shots"]),
    ({"name": "fo-maml", "curvature": "exact"}, ConfigError, ["fo-maml", "curvature"]),
    ({"optimizer": optax.adam(1e-3), "eta": 0.1}, ConfigError, ["optimizer", "eta"]),
    ({"optimizer": "nadam"}, ConfigError, ["optimizer", "nadam", "sgd"]),
    ({"outer": "adam"}, ConfigError, ["outer"]),
    ({"leaves": moml.parts.named("nosuch")}, ConfigError, ["leaves"]),
    ({"name": "moml-v2", "leaves": moml.parts.named("nosuch")}, ConfigError, ["leaves"]),
    ({"name": "fo-maml", "adapt": lambda s: None}, ConfigError, ["fo-maml", "adapt"]),
    ({"name": "maml", "beta": 0.3}, ConfigError, ["maml", "beta"]),
    ({"seed": 2**32}, ConfigError, ["seed"]),
    ({"chunk": 0}, ConfigError, ["chunk", "0"]),
    ({"n": 25}, ConfigError, ["n"]),
]  # fmt: skip


@pytest.mark.parametrize("given, kind, words", BAD, ids=lambda value: str(value)[:40])
def test_bad_settings(given, kind, words):
    with pytest.raises(kind) as caught:
        fit(**given)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "params, loss, words",
    [
        ({"w": np.zeros(3, int)}, lambda w, b: jnp.sum(w["w"]), ["['w']", "int"]),
        ({}, lambda w, b: jnp.zeros(()), ["no leaves"]),
        ({"w": "text"}, lambda w, b: jnp.zeros(()), ["['w']", "str"]),
        (np.zeros(3), lambda w, b: w, ["one floating-point number", "[3]"]),
        (np.zeros(3), lambda w, b: (jnp.sum(w), w), ["one floating-point number"]),
        (np.zeros(3), lambda w, b: jnp.sum(w).astype(int), ["one floating-point number", "int"]),
        (np.zeros((3, 1)), lambda w, b: jnp.mean(b.x @ w), ["cannot be evaluated", "[2, 1]"]),
    ],
)
def test_bad_losses_and_parameters(params, loss, words):
    with pytest.raises(DataError) as caught:
        moml.fit("maml", loss, params, moml.sine(), k=2)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
