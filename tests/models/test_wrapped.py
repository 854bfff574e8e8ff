"""Losses with a key, metrics and state, and networks of other libraries that have them."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import moml
from moml.errors import ConfigError
from moml.models.networks import shifted
from moml.models.wrapped import Aux, key_of, wrap_loss
from moml.tasks.keyed import keyed
from moml.types import Batch

F32 = np.float32
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 30, 4)).astype(F32)
Y = (X @ (1 + RNG.normal(size=(6, 4, 1)) / 2)).astype(F32)
TASKS = moml.from_arrays(X, Y)
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def batch(task=0, bits=None):
    bits = None if bits is None else jnp.full(30, bits, jnp.uint32)
    return Batch(jnp.asarray(X[task]), jnp.asarray(Y[task]), None, bits)


def running(params, batch):
    """A slope, and the running mean of y as state."""
    value = jnp.mean((params["w"] * batch.x - params["mean"] - batch.y) ** 2)
    mean = 0.5 * params["mean"] + 0.5 * jnp.mean(batch.y)
    return value, Aux({"root": jnp.sqrt(value)}, {"w": jnp.nan, "mean": mean})


STATE = moml.parts.named("mean")


def test_state_has_no_gradient_and_is_refreshed_apart():
    loss = wrap_loss(running, state=STATE)
    params = {"w": jnp.float32(2.0), "mean": jnp.float32(3.0)}
    data = Batch(jnp.ones(4, jnp.float32), jnp.full(4, 5, jnp.float32))
    assert float(loss(params, data)) == 36.0
    assert float(loss.metrics(params, data)["root"]) == 6.0
    slope = jax.grad(loss)(params, data)
    assert (float(slope["w"]), float(slope["mean"])) == (-12.0, 0.0)
    new = loss.refresh(params, data)
    assert (float(new["w"]), float(new["mean"])) == (2.0, 4.0)
    assert loss.state(params) == {"w": False, "mean": True}


def test_methods_that_do_not_refresh_state_are_refused():
    loss = wrap_loss(running, state=STATE)
    params = {"w": jnp.float32(2.0), "mean": jnp.float32(3.0)}
    with pytest.raises(
        ConfigError, match=r"\(batch statistics\) needs a federated method; got maml"
    ):
        moml.fit("maml", loss, params, TASKS, iterations=1)


def test_a_plain_loss_has_no_state_to_refresh():
    plain = lambda params, batch: jnp.sum(params["w"])
    params = {"w": jnp.float32(2.0)}
    wrapped = wrap_loss(plain)
    assert wrapped.state(params) == {"w": False}
    assert wrapped.refresh(params, None) is params
    assert wrapped.metrics(params, None) == {}


def test_losses_of_the_same_functions_are_equal():
    made = [wrap_loss(running, state=STATE) for _ in range(2)]
    assert made[0] == made[1]
    assert hash(made[0]) == hash(made[1])
    assert made[0] != wrap_loss(running)


def test_value_and_state_share_one_forward_pass():
    net = moml.models.resnet18(1, 2, norm="batch", width=2)
    loss, params = moml.cross_entropy(net.training), net.init(jax.random.key(0))
    data = Batch(jnp.zeros((2, 8, 8, 1)), jnp.zeros(2, jnp.int32))
    alone = jax.jit(loss).lower(params, data).compile()
    both = jax.jit(lambda p, b: (loss(p, b), loss.refresh(p, b))).lower(params, data).compile()
    dots = [program.as_text().count(" dot(") for program in (alone, both)]
    assert dots[0] == dots[1] >= 20


def test_bits_travel_with_the_samples_and_change_nothing_else():
    tasks = keyed(TASKS)
    ids, key = jnp.array([1, 4], jnp.int32), jax.random.key(3)
    with_bits = tasks.fetch(ids, tasks.draw(key, ids, 7))
    plain = TASKS.fetch(ids, TASKS.draw(key, ids, 7))
    assert with_bits.bits.dtype == jnp.uint32
    assert len(np.unique(with_bits.bits)) == 14
    np.testing.assert_array_equal(with_bits.x, plain.x)
    np.testing.assert_array_equal(with_bits.y, plain.y)
    assert tasks.full(ids).bits is None
    np.testing.assert_array_equal(tasks.sizes(ids), [30, 30])
    again = keyed(TASKS)
    assert (again.draw_from, again.fetch_from) == (tasks.draw_from, tasks.fetch_from)


def test_episodes_have_bits_of_each_image():
    images = np.zeros((6, 5, 4, 4, 1), np.uint8)
    tasks, ids = keyed(moml.episodes(images, ways=3)), jnp.array([7], jnp.int32)
    got = tasks.fetch(ids, tasks.draw(jax.random.key(0), ids, 2))
    assert got.bits.shape == got.y.shape == (1, 6)


def noisy(params, batch, key):
    noise = 0.0 if key is None else jax.random.normal(key, batch.y.shape, batch.y.dtype)
    return jnp.mean((batch.x @ params - batch.y + noise) ** 2)


def test_a_key_comes_with_the_batch_and_is_none_without_bits():
    loss, w = wrap_loss(noisy, key=True), jnp.zeros((4, 1), jnp.float32)
    one, same, other = (float(loss(w, batch(bits=bits))) for bits in (1, 1, 2))
    assert one == same != other
    assert key_of(batch()) is None
    close(loss(w, batch()), np.mean(Y[0] ** 2))


def test_training_with_a_key_needs_keyed_tasks_and_scores_do_not():
    loss, w = wrap_loss(noisy, key=True), jnp.zeros((4, 1), jnp.float32)
    with pytest.raises(ConfigError, match=r"keyed tasks: moml.tasks.keyed\(tasks\)"):
        moml.fit("maml", loss, w, TASKS, iterations=1)
    with pytest.raises(ConfigError, match=r"keyed tasks: moml.tasks.keyed\(tasks\)"):
        moml.sweep("maml", loss, lambda key: w, TASKS, seeds=1, iterations=1)
    learner = moml.fit("maml", loss, w, keyed(TASKS), iterations=5, k=5)
    quiet = moml.fit("maml", lambda w, b: noisy(w, b, None), w, TASKS, iterations=5, k=5)
    assert not np.allclose(learner.meta, quiet.meta)
    scores = [moml.evaluate(learner, loss, t, shots=5) for t in (TASKS, keyed(TASKS))]
    np.testing.assert_array_equal(*scores)


class Linen(nn.Module):
    """Batch norm and dropout, as flax's own examples write them."""

    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(nn.Dense(8)(x))
        x = nn.Dropout(0.5, deterministic=not train)(nn.relu(x))
        return nn.Dense(1, name="head")(x)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.body = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.head = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.head(self.dropout(nnx.relu(self.norm(self.body(x)))))


class Eqx(eqx.Module):
    body: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.body = eqx.nn.Linear(4, 8, dtype=jnp.float32, key=one)
        self.norm = eqx.nn.BatchNorm(8, "batch", momentum=0.9, mode="ema", dtype=jnp.float32)
        self.dropout = eqx.nn.Dropout(0.5)
        self.head = eqx.nn.Linear(8, 1, dtype=jnp.float32, key=two)

    def __call__(self, x, state, key=None):
        x, state = self.norm(self.body(x), state)
        return self.head(self.dropout(jax.nn.relu(x), key=key)), state


MODULES = {
    "linen": lambda: moml.from_linen(
        Linen(), jnp.zeros((1, 4), jnp.float32), train={"train": True}, use={"train": False},
        dropout=True,
    ),
    "nnx": lambda: moml.from_nnx(lambda key: Nnx(nnx.Rngs(key)), dropout=True),
    "equinox": lambda: moml.from_equinox(eqx.nn.make_with_state(Eqx), dropout=True),
}  # fmt: skip


def state_leaves(loss, params):
    marks = jax.tree.leaves(loss.state(params))
    return [x for x, marked in zip(jax.tree.leaves(params), marks, strict=True) if marked]


@pytest.fixture(params=MODULES)
def net(request):
    return MODULES[request.param]()


def test_modules_begin_by_their_key_and_mark_their_statistics(net):
    loss = moml.mse(net.training)
    one, other = (net.init(jax.random.key(i)) for i in (0, 1))
    assert net.predict(one, jnp.asarray(X[0])).shape == (30, 1)
    assert not np.allclose(*(net.predict(p, jnp.asarray(X[0])) for p in (one, other)))
    stats = [x for x in state_leaves(loss, one) if x.ndim]
    assert sorted(float(x.sum()) for x in stats) in ([0, 8], [0, 0])  # equinox begins with 0, 0
    assert sum(jax.tree.leaves(moml.parts.named("head")(one))) == 2


def test_modules_draw_with_a_key_alone(net):
    loss, params = moml.mse(net.training), net.init(jax.random.key(0))
    one, same, other = (float(loss(params, batch(bits=bits))) for bits in (1, 1, 2))
    assert one == same != other
    without = loss(params, batch())
    close(without, moml.mse(net.predict)(params, batch()))
    jax.tree.map(np.testing.assert_array_equal, loss.refresh(params, batch()), params)


def test_modules_statistics_move_towards_those_of_the_batches(net):
    loss, params = moml.mse(net.training), net.init(jax.random.key(0))
    gradient = jax.tree.leaves(jax.grad(loss)(params, batch(bits=1)))
    marks = jax.tree.leaves(loss.state(params))
    assert all((np.abs(g).max() == 0) == m for g, m in zip(gradient, marks, strict=True) if g.ndim)
    refresh = jax.jit(loss.refresh)
    for _ in range(150):
        params = refresh(params, batch(bits=1))
    [kernel] = [np.asarray(x) for x in jax.tree.leaves(params) if sorted(x.shape) == [4, 8]]
    hidden = X[0] @ (kernel if kernel.shape == (4, 8) else kernel.T)  # biases begin at 0, or add
    stats = [np.asarray(x) for x in state_leaves(loss, params) if x.ndim]
    assert sum(np.allclose(x, hidden.var(axis=0), rtol=1e-3, atol=1e-4) for x in stats) == 1
    offset = [x - hidden.mean(axis=0) for x in stats]
    biases = [np.asarray(x) for x in jax.tree.leaves(params) if x.shape == (8,)]
    assert any(np.allclose(o, b, atol=1e-4) for o in offset for b in biases)


def test_modules_train_by_fit(net):
    loss, params = moml.mse(net.training), net.init(jax.random.key(0))
    learner = moml.fit(
        "fedavg", loss, params, keyed(TASKS), k=10, iterations=150, local_steps=2, eta=0.05
    )
    assert learner.history[-20:].mean() < 0.9 * learner.history[:5].mean()
    scores = moml.evaluate(learner, moml.mse(net.predict), TASKS, shots=5)
    assert np.isfinite(scores).all()


def test_modules_without_state_or_dropout_need_no_wrapping():
    nets = [
        moml.from_linen(nn.Dense(1), jnp.zeros((1, 4), jnp.float32)),
        moml.from_nnx(lambda key: nnx.Linear(4, 1, rngs=nnx.Rngs(key))),
        moml.from_equinox(lambda key: eqx.nn.Linear(4, 1, dtype=jnp.float32, key=key)),
    ]
    for net in nets:
        assert net.training is None
        loss, params = moml.mse(net.predict), net.init(jax.random.key(0))
        learner = moml.fit("maml", loss, params, TASKS, iterations=200, k=5, eta=0.02, alpha=0.1)
        assert learner.history[-50:].mean() < 0.9 * learner.history[:50].mean()


def test_state_neither_adapts_nor_is_remembered():
    def function(params, batch):
        mean = jnp.mean(batch.x)
        value = jnp.mean((params["w"] * (batch.x - params["mean"]) - batch.y) ** 2)
        return value, Aux(state={"w": params["w"], "mean": 0.9 * params["mean"] + 0.1 * mean})

    loss = wrap_loss(function, state=moml.parts.named("mean"))
    x = np.random.default_rng(0).normal(1.0, 0.1, (4, 6, 1))
    tasks, w = moml.from_arrays(x, 2 * x), {"w": jnp.ones(()), "mean": jnp.zeros(())}
    options = {"iterations": 6, "local_steps": 3, "tasks_per_step": 4, "k": 2, "carried": True}
    learner = moml.fit("localmoml", loss, w, tasks, **options)
    assert learner.state.memory.u["mean"] is None and learner.state.memory.u["w"].shape == (4,)
    mean = 0.0
    for _ in range(6):  # renewed at every local step, then averaged over clients
        mean = 0.9 * mean + 0.1 * 1.0
    np.testing.assert_allclose(learner.params["mean"], mean, rtol=0.1)
    mine = learner.adapt(moml.Batch(jnp.asarray(x[0]), jnp.asarray(2 * x[0])))
    assert mine["mean"] == learner.params["mean"] and mine["w"] != learner.params["w"]


def test_a_module_in_place_of_a_function_is_refused():
    with pytest.raises(ConfigError, match="lambda key: module; got a module"):
        moml.from_equinox(eqx.nn.Linear(4, 1, key=jax.random.key(0)))


def test_a_shifted_network_is_trained_shifted():
    net = MODULES["nnx"]()
    moved, params = shifted(net, 1.0, 2.0), net.init(jax.random.key(0))
    one, other = batch(bits=1), batch(bits=1)._replace(x=2 * jnp.asarray(X[0]) + 1)
    for f in (lambda net: moml.mse(net.training), lambda net: moml.mse(net.predict)):
        close(f(net)(params, one), f(moved)(params, other))
    refresh = [moml.mse(n.training).refresh(params, b) for n, b in ((net, one), (moved, other))]
    jax.tree.map(close, *refresh)
