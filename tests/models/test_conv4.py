"""Conv4 against slow loops, and what its answers may depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.errors import ConfigError
from moml.models import accuracy, accuracy_alone, conv4, cross_entropy
from moml.models.conv4 import NORMS
from moml.types import Batch


def slow_block(block, x, norm):
    """A 3 x 3 convolution with stride 2 and a border of zeros, pixel by pixel."""
    n, high, wide, channels = x.shape
    weight = np.asarray(block.weight).reshape(3, 3, channels, -1)
    out = np.zeros((n, -(-high // 2), -(-wide // 2), weight.shape[-1]))
    for i in range(out.shape[1]):
        for j in range(out.shape[2]):
            for a in range(3):
                for b in range(3):
                    row, column = 2 * i + a - 1, 2 * j + b - 1
                    if 0 <= row < high and 0 <= column < wide:
                        out[:, i, j] += x[:, row, column] @ weight[a, b]
    axes = {"batch": (0, 1, 2), "sample": (1, 2, 3)}.get(norm)
    if axes:
        centred = out - out.mean(axes, keepdims=True)
        out = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)
    return np.maximum(out * np.asarray(block.scale) + np.asarray(block.offset), 0)


def made(norm, side=7, channels=2, seed=0):
    net = conv4(channels, 5, filters=3, norm=norm)
    params = net.init(jax.random.key(seed))
    noise = lambda x: x + 0.1 * jax.random.normal(jax.random.key(x.size), x.shape)
    x = np.random.default_rng(seed).normal(size=(6, side, side, channels))
    return net, jax.tree.map(noise, params), x


@pytest.mark.parametrize("side", [7, 8, 28])
@pytest.mark.parametrize("norm", NORMS)
def test_equals_slow_loops(norm, side):
    net, params, x = made(norm, side)
    slow = x
    for block in params.body:
        slow = slow_block(block, slow, norm)
    slow = slow.mean(axis=(1, 2))
    np.testing.assert_allclose(net.features(params, jnp.asarray(x)), slow, rtol=1e-10, atol=1e-12)
    logits = slow @ np.asarray(params.head.weight).T + np.asarray(params.head.bias)
    np.testing.assert_allclose(net.predict(params, jnp.asarray(x)), logits, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_only_batch_statistics_let_answers_depend_on_each_other(norm):
    net, params, x = made(norm)
    whole = net.predict(params, jnp.asarray(x))
    other = net.predict(params, jnp.asarray(np.concatenate([x[:1], 3 * x[1:]])))
    same = np.allclose(whole[0], other[0], rtol=1e-10)
    assert same == (norm != "batch")


def batch(x, seed=1):
    y = np.random.default_rng(seed).integers(0, 5, len(x)).astype(np.int32)
    return Batch(jnp.asarray(x), jnp.asarray(y))


@pytest.mark.parametrize("norm", NORMS)
def test_alone_asks_one_image_at_a_time(norm):
    net, params, x = made(norm)
    support, query = batch(x), batch(np.random.default_rng(7).normal(size=(20, 7, 7, 2)))
    right = 0
    for image, label in zip(query.x, query.y, strict=True):
        logits = net.predict(params, jnp.concatenate([support.x, image[None]]))
        right += int(np.argmax(np.asarray(logits[-1])) == int(label))
    got = accuracy_alone(net.predict)(params, support, query)
    assert float(got) == pytest.approx(100 * right / 20)
    if norm != "batch":
        assert float(got) == pytest.approx(float(accuracy(net.predict)(params, query)))


def test_alone_cannot_see_the_other_queries():
    net, params, x = made("batch")
    support, query = batch(x), batch(np.random.default_rng(7).normal(size=(20, 7, 7, 2)))
    score = lambda q: float(accuracy_alone(net.predict)(params, support, q))
    mask = jnp.arange(20) < 10
    changed = query._replace(x=query.x.at[10:].multiply(5.0), mask=mask)
    assert score(query._replace(mask=mask)) == score(changed)


def test_accuracy_honours_the_mask():
    predict = lambda params, x: x
    logits = jnp.eye(4, 3)
    y = jnp.array([0, 1, 0, 0], jnp.int32)
    score = accuracy(predict)
    assert float(score((), Batch(logits, y))) == 75.0
    assert float(score((), Batch(logits, y, jnp.array([True, True, True, False])))) == (
        pytest.approx(200 / 3)
    )


def test_it_learns_a_few_images():
    net = conv4(1, 2, filters=4)
    x = np.zeros((8, 8, 8, 1))
    x[:4, :, :4], x[4:, :, 4:] = 1.0, 1.0
    x += 0.1 * np.random.default_rng(0).normal(size=x.shape)
    data = Batch(jnp.asarray(x), jnp.array([0] * 4 + [1] * 4, jnp.int32))
    loss = cross_entropy(net.predict)
    params, step = net.init(jax.random.key(0)), jax.jit(jax.grad(loss))
    for _ in range(30):
        params = jax.tree.map(lambda w, g: w - 0.3 * g, params, step(params, data))
    assert float(accuracy(net.predict)(params, data)) == 100.0


def test_an_unknown_norm_is_refused():
    with pytest.raises(ConfigError, match="norm must be one of batch, sample, none; got 'layer'"):
        conv4(1, 5, norm="layer")
