"""Convolutions, the CNN and ResNet-18 against lax's convolutions and slow loops of numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.errors import ConfigError
from moml.models import cnn, cross_entropy, mlp, mse, resnet18
from moml.models.convolution import convolve, max_pool
from moml.models.networks import shifted
from moml.models.norms import BatchNorm, Norm, Stats, batch_norm, group_norm, running_norm
from moml.parts import named
from moml.types import Batch

RNG = np.random.default_rng(0)
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def noisy(tree, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape), tree)


def slow_convolve(x, weight, kernel, stride=1, padding=0):
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    high, wide = ((side - kernel) // stride + 1 for side in x.shape[1:3])
    filters = np.asarray(weight).reshape(kernel, kernel, x.shape[3], -1)
    out = np.zeros((len(x), high, wide, filters.shape[-1]))
    for i, j in np.ndindex(high, wide):
        for a, b in np.ndindex(kernel, kernel):
            out[:, i, j] += x[:, i * stride + a, j * stride + b] @ filters[a, b]
    return out


def slow_max_pool(x):
    out = np.zeros((len(x), x.shape[1] // 2, x.shape[2] // 2, x.shape[3]))
    for i, j in np.ndindex(*out.shape[1:3]):
        out[:, i, j] = x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((1, 2))
    return out


def lax_convolve(x, weight, kernel, stride=1, padding=0):
    return jax.lax.conv_general_dilated(
        x, weight.reshape(kernel, kernel, x.shape[3], -1), (stride, stride),
        [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(7, 9), (8, 8)])
@pytest.mark.parametrize("kernel, stride, padding", [(5, 1, 0), (3, 2, 1), (3, 1, 1), (1, 2, 0)])
def test_patches_are_a_convolution_and_so_are_their_gradients(shape, kernel, stride, padding):
    x = jnp.asarray(RNG.normal(size=(2, *shape, 3)))
    weight = jnp.asarray(RNG.normal(size=(kernel * kernel * 3, 4)))
    how = {"stride": stride, "padding": padding}
    ours = convolve(x, weight, kernel, **how)
    close(ours, slow_convolve(x, weight, kernel, **how))
    close(ours, lax_convolve(x, weight, kernel, **how))
    at = jnp.asarray(RNG.normal(size=ours.shape))
    sides = [
        jax.grad(lambda x, w, f=f: jnp.sum(at * jnp.sin(f(x, w, kernel, **how))), (0, 1))(x, weight)
        for f in (convolve, lax_convolve)
    ]
    jax.tree.map(close, *sides)


@pytest.mark.parametrize("shape", [(6, 4), (7, 5)])
def test_max_pool_is_its_loop_and_moves_the_largest(shape):
    x = RNG.normal(size=(2, *shape, 3))
    close(max_pool(jnp.asarray(x)), slow_max_pool(x))
    got = np.asarray(jax.grad(lambda x: jnp.sum(max_pool(x)))(jnp.asarray(x)))
    wanted = np.zeros_like(x)
    for k, i, j, c in np.ndindex(2, shape[0] // 2, shape[1] // 2, 3):
        piece = x[k, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c]
        a, b = np.unravel_index(piece.argmax(), (2, 2))
        wanted[k, 2 * i + a, 2 * j + b, c] = 1
    close(got, wanted)


def test_ties_share_the_gradient_of_max_pool():
    x = jnp.array([[1.0, 1.0], [1.0, 0.0]])[None, :, :, None]
    got = jax.grad(lambda x: jnp.sum(max_pool(x)))(x)
    close(got[0, :, :, 0], [[1 / 3, 1 / 3], [1 / 3, 0]])


def slow_cnn(params, x):
    for layer in params.body:
        x = slow_convolve(x, layer.weight, 5) + np.asarray(layer.bias)
        x = slow_max_pool(np.maximum(x, 0))
    hidden = x.reshape(len(x), -1) @ np.asarray(params.hidden.weight).T
    hidden = np.maximum(hidden + np.asarray(params.hidden.bias), 0)
    return hidden, hidden @ np.asarray(params.head.weight).T + np.asarray(params.head.bias)


@pytest.mark.parametrize("side, inputs", [(28, 1024), (32, 1600), (16, 64)])
def test_the_cnn_is_fedavgs(side, inputs):
    net = cnn(2, 5, side=side)
    params = net.init(jax.random.key(0))
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
    assert shapes == [(50, 32), (32,), (800, 64), (64,), (512, inputs), (512,), (5, 512), (5,)]
    x = RNG.normal(size=(2, side, side, 2))
    hidden, logits = slow_cnn(params, x)
    close(net.features(params, jnp.asarray(x)), hidden)
    close(net.predict(params, jnp.asarray(x)), logits)


def test_the_cnn_begins_as_pytorchs():
    params = cnn(3, 10).init(jax.random.key(0))
    layers = [*params.body, params.hidden, params.head]
    for layer, fan_in in zip(layers, (75, 800, 1600, 512), strict=True):
        for leaf in layer:
            assert 0.8 < float(jnp.abs(leaf).max()) * fan_in**0.5 <= 1
            if leaf.ndim == 2:
                assert float(leaf.std()) * fan_in**0.5 == pytest.approx(3**-0.5, rel=0.05)


def test_the_cnns_gradient_is_that_of_the_order_of_the_paper():
    net = cnn(1, 3, side=16)
    params, y = net.init(jax.random.key(0)), jnp.array([0, 1, 2], jnp.int32)
    data = Batch(jnp.asarray(RNG.normal(size=(3, 16, 16, 1))), y)

    def plain(params, x):  # conv, ReLU, max-pool, as in the paper
        for layer in params.body:
            x = jax.nn.relu(lax_convolve(x, layer.weight, 5) + layer.bias[None, None, None])
            x = -jax.lax.reduce_window(
                -x, jnp.inf, jax.lax.min, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
            )
        hidden = x.reshape(len(x), -1) @ params.hidden.weight.T + params.hidden.bias[None]
        return jax.nn.relu(hidden) @ params.head.weight.T + params.head.bias[None]

    sides = [jax.grad(cross_entropy(f))(params, data) for f in (net.predict, plain)]
    jax.tree.map(close, *sides)


def slow_norm(kind, norm, x):
    if kind == "group":
        half = x.shape[3] // 2
        parts = [x[..., :half], x[..., half:]]
        mean = [p.mean((1, 2, 3), keepdims=True) for p in parts]
        std = [np.sqrt(p.var((1, 2, 3), keepdims=True) + 1e-5) for p in parts]
        x = np.concatenate([(p - m) / s for p, m, s in zip(parts, mean, std, strict=True)], -1)
    else:
        mean, variance = (x.mean((0, 1, 2)), x.var((0, 1, 2))) if kind == "batch" else norm.stats
        x = (x - np.asarray(mean)) / np.sqrt(np.asarray(variance) + 1e-5)
    return x * np.asarray(norm.scale) + np.asarray(norm.offset)


def slow_resnet(params, x, kind):
    x = np.maximum(slow_norm(kind, params.norm, slow_convolve(x, params.stem, 3, 1, 1)), 0)
    for i, block in enumerate(params.body):
        stride = 2 if i in (2, 4, 6) else 1
        y = slow_norm(kind, block.norm1, slow_convolve(x, block.conv1, 3, stride, 1))
        y = slow_norm(kind, block.norm2, slow_convolve(np.maximum(y, 0), block.conv2, 3, 1, 1))
        if block.shortcut is not None:
            x = slow_norm(
                kind, block.shortcut.norm, slow_convolve(x, block.shortcut.conv, 1, stride)
            )
        x = np.maximum(y + x, 0)
    features = x.mean((1, 2))
    return features @ np.asarray(params.head.weight).T + np.asarray(params.head.bias)


@pytest.mark.parametrize("kind", ["group", "batch", "running"])
def test_resnet_is_its_slow_loop(kind):
    net = resnet18(3, 5, norm="group" if kind == "group" else "batch", width=2)
    params = noisy(net.init(jax.random.key(0)))
    x = RNG.normal(size=(4, 12, 9, 3))
    if kind == "batch":
        got, _ = net.training.apply(params, jnp.asarray(x), None, None)
    else:
        got = net.predict(params, jnp.asarray(x))
    np.testing.assert_allclose(got, slow_resnet(params, x, kind), rtol=1e-10, atol=1e-10)


def test_resnet18_has_as_many_parameters_as_the_usual_one():
    shapes = jax.eval_shape(resnet18(3, 10).init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 11_173_962
    shapes = jax.eval_shape(resnet18(3, 10, norm="batch").init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 11_173_962 + 2 * 4_800


def test_batch_norm_moves_the_running_statistics_as_pytorch_does():
    norm = BatchNorm(jnp.ones(2), jnp.zeros(2), Stats(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])))
    x = RNG.normal(size=(3, 2, 2, 2))
    _, moved = batch_norm(None)(norm, jnp.asarray(x))
    flat = x.reshape(-1, 2)
    close(moved.stats.mean, 0.9 * np.array([1.0, 2.0]) + 0.1 * flat.mean(0))
    close(moved.stats.variance, 0.9 * np.array([3.0, 4.0]) + 0.1 * flat.var(0, ddof=1))
    assert moved.scale is norm.scale


def test_padding_is_not_in_the_statistics():
    norm = BatchNorm(jnp.ones(2), jnp.zeros(2), Stats(jnp.zeros(2), jnp.ones(2)))
    x = RNG.normal(size=(5, 2, 2, 2))
    mask = jnp.array([True, True, True, False, False])
    padded, with_padding = batch_norm(mask)(norm, jnp.asarray(x))
    alone, without = batch_norm(None)(norm, jnp.asarray(x[:3]))
    close(padded[:3], alone)
    jax.tree.map(close, with_padding, without)
    _, same = batch_norm(jnp.zeros(5, bool))(norm, jnp.asarray(x))
    jax.tree.map(close, same, norm)


def test_running_statistics_alone_decide_at_use():
    norm = BatchNorm(jnp.ones(2), jnp.zeros(2), Stats(jnp.ones(2), jnp.full(2, 4.0)))
    y, same = running_norm(norm, jnp.full((1, 1, 1, 2), 5.0))
    close(y, np.full((1, 1, 1, 2), 4 / np.sqrt(4 + 1e-5)))
    assert same is norm


def test_group_norm_sees_one_image():
    norm, x = Norm(jnp.ones(4), jnp.zeros(4)), jnp.asarray(RNG.normal(size=(2, 3, 3, 4)))
    close(group_norm(norm, x)[0][:1], group_norm(norm, x[:1])[0])


@pytest.mark.parametrize("net", [cnn(1, 3, side=16), resnet18(1, 3, norm="batch", width=2)])
def test_names_select_leaves(net):
    params = jax.eval_shape(net.init, jax.random.key(0))
    head = named("head")(params)
    assert head.head == (True, True)
    assert sum(jax.tree.leaves(head)) == 2
    stats = sum(jax.tree.leaves(named("stats")(params)))
    norms = sum(jax.tree.leaves(named("norm")(params)))
    assert (norms, stats) == ((80, 40) if net.training else (0, 0))


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="side must be at least 16 pixels; got 15"):
        cnn(1, 10, side=15)
    with pytest.raises(ConfigError, match="norm must be one of group, batch; got 'layer'"):
        resnet18(1, 10, norm="layer")
    with pytest.raises(ConfigError, match="width must be even; got 3"):
        resnet18(1, 10, width=3)
    with pytest.raises(ConfigError, match="classes must be a whole number from 1; got 0"):
        cnn(1, 0)


def test_networks_and_losses_made_alike_are_the_same_functions():
    made = [mse(shifted(mlp(2, 8, 1), 0.5, 2.0).predict) for _ in range(2)]
    assert made[0] is made[1]
    assert mse(shifted(mlp(2, 9, 1), 0.5, 2.0).predict) is not made[0]
