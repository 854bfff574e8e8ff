"""Parameters of several floating types: every leaf keeps its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from tests.support.often import often

RNG = np.random.default_rng(0)
BODY, HEAD = RNG.normal(size=(1, 8)), RNG.normal(size=(8, 1))
METHODS = {
    "maml": {}, "hf-maml": {}, "moml-v1": {}, "moml-v2": {}, "meta-sgd": {}, "nasa": {},
    "reptile": {}, "localmoml": {"carried": True}, "pfedme": {}, "fedavg": {},
}  # fmt: skip


def made(body, scale, head):
    return {
        "body": jnp.asarray(BODY, body),
        "scale": jnp.ones(8, scale),
        "head": jnp.asarray(HEAD, head),
    }


def loss(params, batch):
    wide = jax.tree.map(lambda x: x.astype(float), params)
    hidden = jnp.tanh(batch.x @ wide["body"]) * wide["scale"][None]
    return jnp.mean((hidden @ wide["head"] - batch.y) ** 2)


@pytest.mark.parametrize("name", often(METHODS, ["moml-v1", "localmoml", "scaffold"]))
def test_every_leaf_keeps_its_type(name):
    mixed, types = made("float32", "bfloat16", "float64"), ("float32", "bfloat16", "float64")
    options = {"iterations": 12, "k": 4, **METHODS[name]}
    learner = moml.fit(name, loss, mixed, moml.sine(), **options)
    got = learner.params
    assert tuple(str(got[leaf].dtype) for leaf in ("body", "scale", "head")) == types
    uniform = moml.fit(name, loss, made(*["float64"] * 3), moml.sine(), **options)
    np.testing.assert_allclose(learner.history, uniform.history, rtol=0.05)
    assert not np.array_equal(got["scale"], mixed["scale"]) or name in ("reptile", "meta-sgd")


@pytest.mark.parametrize("name", ["maml", "moml-v2", "fedavg"])
def test_nearby_types_give_nearby_results(name):
    options = {"iterations": 20, "k": 4, "schedule": moml.parts.cosine(20)}
    one, other = (
        moml.fit(name, loss, made(body, "float64", "float64"), moml.sine(), **options).params
        for body in ("float32", "float64")
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), one, other)


def test_members_of_a_sweep_have_them_too():
    init = lambda key: made("float32", "bfloat16", "float64")
    done = moml.sweep(
        "maml", loss, init, moml.sine(), seeds=2, grid={"eta": [0.01, 0.02]}, iterations=6, k=2
    )
    assert {name: str(leaf.dtype) for name, leaf in done.meta.items()} == {
        "body": "float32", "scale": "bfloat16", "head": "float64",
    }  # fmt: skip


def test_what_is_no_float_is_refused():
    with pytest.raises(moml.errors.DataError, match="floating-point array; got int32"):
        moml.fit("maml", loss, {"body": jnp.zeros(2, jnp.int32)}, moml.sine(), iterations=1)
