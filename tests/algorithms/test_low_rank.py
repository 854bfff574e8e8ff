"""Low-rank adapters: equal to a slow reference, to the base at zero, to full steps at full rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.errors import ConfigError
from moml.methods import method
from moml.models import Model, Training, cnn, mlp, resnet18
from moml.parts import adapters, named
from moml.tasks import from_arrays
from tests.algorithms.common import (
    HYPER,
    B,
    K,
    N,
    T,
    assert_close,
    at,
    clients,
    data,
    draws,
    flat,
    run,
    visits_of,
)
from tests.reference.adaptation import gradient_steps
from tests.reference.localmoml import localmoml
from tests.reference.low_rank import C, low_rank
from tests.reference.maml import maml
from tests.reference.moml_v1 import moml_v1

W = np.random.default_rng(4).normal(size=(3, 2))
BASE = {"body": jnp.asarray(W), "head": jnp.array([0.3, -0.2])}
PROBLEM = low_rank(W)


def wide(params, x):
    """The sigmoid problem's prediction, whose body is a matrix times c."""
    return jax.nn.sigmoid(
        x[:, :3] @ (params["body"] @ C) + x[:, 3] * params["head"][0] + params["head"][1]
    )


def squared(net):
    return lambda p, batch: jnp.mean((net.predict(p, batch.x) - batch.y) ** 2)


def with_numbers(p):
    """Adapters that have moved: where B is zero, A would have no gradient."""
    rng = np.random.default_rng(5)
    return jax.tree.map(lambda leaf: leaf + 0.5 * rng.normal(size=leaf.shape), p)


SLOW = {
    "maml": lambda A, w, each: maml(A, w, [draws(v) for v in each], eta=HYPER.eta),
    "moml-v1": lambda A, w, each: moml_v1(
        A, w, [draws(v) for v in each], eta=HYPER.eta, beta=HYPER.beta
    )[0],
    "localmoml": lambda A, w, each: localmoml(
        A, w, [clients(v) for v in each], eta=HYPER.eta, beta=HYPER.beta
    )[0],
}


@pytest.mark.parametrize(
    ("name", "steps"), [("maml", 1), ("maml", 2), ("moml-v1", 2), ("localmoml", 1)]
)
def test_equals_reference(name, steps):
    net = adapters(Model(lambda key: BASE, wide), BASE, rank=1, whole="head")
    params = with_numbers(net.init(jax.random.key(0)))
    tasks = from_arrays(*data())
    local = {"local_steps": 3} if name == "localmoml" else {}
    m = method(name, squared(net), n=N, k=K, tasks_per_step=B, inner_steps=steps, **local)
    shared = {n: getattr(HYPER, n) for n in ("eta", "alpha", "beta") if hasattr(m.hyper, n)}
    hyper = m.hyper._replace(**shared)
    state = m.algorithm.init(params, hyper)
    visits = visits_of(m.algorithm.needs, tasks)
    A = gradient_steps(PROBLEM, HYPER.alpha, steps, tie=np.eye(7))
    path = SLOW[name](A, flat(params), [at(visits, t) for t in range(T)])
    _, metas, _ = run(m.algorithm, state, visits, hyper)
    assert_close(metas, path, 1e-12)
    assert np.linalg.norm(path[-1] - flat(params)) > 1e-2


@pytest.mark.parametrize("name", ["maml", "moml-v1", "localmoml", "fedavg"])
def test_full_rank_equals_the_network_itself(name):
    """Where A is a rotation that stays, B A takes the steps of W, also in means over clients."""
    net = mlp(4, 5, 1, activation=jnp.tanh)
    base = net.init(jax.random.key(0))
    low = adapters(net, base, rank=9, whole="bias", fixed=jax.random.key(3))
    x, y = data()
    tasks = from_arrays(x, y[..., None])
    ends = []
    for one, params in ((net, base), (low, low.init(jax.random.key(1)))):
        local = {"local_steps": 3} if name in ("localmoml", "fedavg") else {}
        m = method(name, moml.mse(one.predict), n=N, k=K, tasks_per_step=B, **local)
        state = m.algorithm.init(params, m.hyper)
        visits = visits_of(m.algorithm.needs, tasks)
        state, _, info = run(m.algorithm, state, visits, m.hyper._replace(eta=0.05))
        ends.append((np.asarray(one.predict(state.meta, x[0])), np.asarray(info.loss)))
    for mine, theirs in zip(*ends, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)
    assert np.abs(ends[0][0] - np.asarray(net.predict(base, x[0]))).max() > 1e-2


IMAGES = jnp.asarray(np.random.default_rng(0).normal(size=(4, 16, 16, 1)))
NETS = {
    "mlp": mlp(256, 8, 3),
    "cnn": cnn(1, 3, side=16),
    "resnet": resnet18(1, 3, width=2),
    "resnet-batch": resnet18(1, 3, width=2, norm="batch"),
}


@pytest.mark.parametrize("name", NETS)
def test_new_adapters_predict_as_the_base(name):
    net = NETS[name]
    base = net.init(jax.random.key(0))
    for fixed in (None, jax.random.key(2)):
        low = adapters(net, base, rank=2, whole="head", fixed=fixed)
        p = low.init(jax.random.key(1))
        np.testing.assert_array_equal(low.predict(p, IMAGES), net.predict(base, IMAGES))
        np.testing.assert_array_equal(low.features(p, IMAGES), net.features(base, IMAGES))
        assert low.training is None  # statistics stay
        moved = jax.tree.map(lambda leaf: leaf + 0.1, p)
        assert np.abs(low.predict(moved, IMAGES) - net.predict(base, IMAGES)).max() > 1e-3
        assert all((f.a is None) == (fixed is not None) for f in p.low.values())


def test_dropout_of_the_base_is_kept():
    net = mlp(4, 8, 1)
    kept = lambda x, key: jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0.0)
    drop = lambda p, x, mask, key: (net.predict(p, kept(x, key)), p)
    base, x = net.init(jax.random.key(0)), jnp.ones((6, 4))
    low = adapters(net._replace(training=Training(drop, key=True)), base, rank=1)
    p = low.init(jax.random.key(1))
    outputs, same = low.training.apply(p, x, None, jax.random.key(2))
    np.testing.assert_array_equal(outputs, drop(base, x, None, jax.random.key(2))[0])
    assert same is p and low.training.key and low.training.state is None


def test_memories_are_small_and_only_adapters_are_learned():
    net = mlp(64, 64, 3)
    base = net.init(jax.random.key(0))
    low = adapters(net, base, rank=2, leaves="body", whole="head", fixed=jax.random.key(1))
    params = low.init(jax.random.key(2))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 12, 64)), rng.integers(0, 3, (5, 12)).astype(np.int32)
    loss = moml.cross_entropy(low.predict)
    tasks = from_arrays(x, y)
    learner = moml.fit("moml-v1", loss, params, tasks, k=2, iterations=3, leaves=named("low"))
    rows = [leaf for leaf in jax.tree.leaves(learner.state.memory) if leaf.ndim > 1]
    assert [leaf.shape for leaf in rows] == [(5, 64, 2)]  # 128 numbers a task of 4,355
    assert set(learner.params.low) == {"body/0/weight"}
    mine = learner.adapt(moml.Batch(x[0][:4], y[0][:4]))
    assert low.predict(mine, jnp.asarray(x[0])).shape == (12, 3)


def test_what_cannot_be_is_told():
    net = mlp(4, 8, 1)
    base = net.init(jax.random.key(0))
    with pytest.raises(ConfigError, match="rank must be"):
        adapters(net, base, rank=0)
    with pytest.raises(ConfigError, match=r"leaves must match the name of a leaf; got 'conv'"):
        adapters(net, base, leaves="conv")
    with pytest.raises(ConfigError, match="leaves must have a matrix; got body/0/weight, "):
        adapters(net, base, leaves="bias")
    with pytest.raises(ConfigError, match="leaves must have a matrix"):
        adapters(net, base, whole="")
    with pytest.raises(ConfigError, match="whole must match the name of a leaf"):
        adapters(net, base, whole="conv")
