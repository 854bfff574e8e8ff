"""ResNet-18 for small images, with group norm or batch norm."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.errors import ConfigError, check_count
from moml.kept import kept
from moml.models.convolution import Images, Maps, convolve, filters
from moml.models.networks import Layer, Model, Training, affine_each, linear
from moml.models.norms import (
    BatchNorm,
    Mask,
    Norm,
    Normalise,
    batch_norm,
    group_norm,
    new_norm,
    running_norm,
    statistics,
)
from moml.types import Key

STRIDES = (1, 1, 2, 1, 2, 1, 2, 1)  # of the eight blocks

Filters = Float[Array, "patch out"]


class Shortcut(NamedTuple):
    """A 1 x 1 convolution around a block that changes the shape."""

    conv: Filters
    norm: Norm | BatchNorm


class Block(NamedTuple):
    """Two 3 x 3 convolutions; without a shortcut the input is added as it is."""

    conv1: Filters
    norm1: Norm | BatchNorm
    conv2: Filters
    norm2: Norm | BatchNorm
    shortcut: Shortcut | None


class ResNet(NamedTuple):
    """The parameters: a stem, eight blocks and a linear head."""

    stem: Filters
    norm: Norm | BatchNorm
    body: tuple[Block, ...]
    head: Layer


def _new_block(key: Key, inputs: int, outputs: int, stride: int, stats: bool) -> Block:
    one, two, around = jax.random.split(key, 3)
    fresh = lambda: new_norm(outputs, stats=stats)
    shortcut = Shortcut(filters(around, 1, inputs, outputs), fresh()) if stride > 1 else None
    conv1, conv2 = filters(one, 3, inputs, outputs), filters(two, 3, outputs, outputs)
    return Block(conv1, fresh(), conv2, fresh(), shortcut)


def _block(block: Block, x: Images, stride: int, normalise: Normalise) -> tuple[Maps, Block]:
    """relu(norm(conv(relu(norm(conv(x))))) + x), and the block with its norms' new statistics."""
    y, norm1 = normalise(block.norm1, convolve(x, block.conv1, 3, stride=stride, padding=1))
    y, norm2 = normalise(block.norm2, convolve(jax.nn.relu(y), block.conv2, 3, padding=1))
    shortcut = block.shortcut
    if shortcut is not None:
        x, norm = normalise(shortcut.norm, convolve(x, shortcut.conv, 1, stride=stride))
        shortcut = shortcut._replace(norm=norm)
    return jax.nn.relu(y + x), block._replace(norm1=norm1, norm2=norm2, shortcut=shortcut)


@kept
def resnet18(channels: int, classes: int, *, norm: str = "group", width: int = 64) -> Model:
    """ResNet-18 as usual for CIFAR: a 3 x 3 stem, no max-pool, four stages of two blocks.

    A block is relu(norm(conv(relu(norm(conv(x))))) + x); the stages have width, 2, 4 and 8 width
    channels, and from the second on halve the image. A mean over the remaining pixels and a linear
    head follow.

    Parameters
    ----------
    channels, classes
        Of the images [K, height, width, channels], and the number of logits.
    norm
        "group": each image is standardised alone, in two groups of channels, as usual in federated
        learning. "batch": over the batch in training, by running statistics in `predict`; train it
        with a loss of `net.training`, such as `moml.cross_entropy(net.training)`.
    width
        Channels of the first stage, an even number.

    Returns
    -------
    Model
        `init(key)` gives a `ResNet` with weights as PyTorch initialises them; `predict(params, x)`
        logits [K, classes]. `moml.parts.named("norm")` finds the normalisations, their statistics
        included, and `named("stats")` these alone.

    >>> net = resnet18(3, 10, width=4)
    >>> params = jax.eval_shape(net.init, jax.random.key(0))  # shapes alone; else net.init(key)
    >>> jax.eval_shape(net.predict, params, jnp.zeros((5, 32, 32, 3))).shape
    (5, 10)
    """
    check_count("channels", channels)
    check_count("classes", classes)
    if check_count("width", width) % 2:
        raise ConfigError(f"width must be even; got {width}")
    if norm not in ("group", "batch"):
        raise ConfigError(f"norm must be one of group, batch; got {norm!r}")
    batch, outputs = norm == "batch", [width * 2 ** (i // 2) for i in range(len(STRIDES))]

    @jax.jit
    def init(key: Key) -> ResNet:
        stem, head, *keys = jax.random.split(key, 2 + len(STRIDES))
        sizes = zip(keys, [width, *outputs], outputs, STRIDES, strict=False)
        return ResNet(
            stem=filters(stem, 3, channels, width),
            norm=new_norm(width, stats=batch),
            body=tuple(_new_block(*size, stats=batch) for size in sizes),
            head=linear(head, outputs[-1], classes),
        )

    def forward(
        params: ResNet, x: Images, normalise: Normalise
    ) -> tuple[Float[Array, "K features"], ResNet]:
        x, norm = normalise(params.norm, convolve(x, params.stem, 3, padding=1))
        x, body = jax.nn.relu(x), []
        for block, stride in zip(params.body, STRIDES, strict=True):
            x, block = _block(block, x, stride, normalise)
            body.append(block)
        return jnp.mean(x, (1, 2)), params._replace(norm=norm, body=tuple(body))

    def features(params: ResNet, x: Images) -> Float[Array, "K features"]:
        return forward(params, x, running_norm if batch else group_norm)[0]

    def predict(params: ResNet, x: Images) -> Float[Array, "K classes"]:
        return affine_each(params.head, features(params, x))

    def apply(
        params: ResNet, x: Images, mask: Mask, key: Key | None
    ) -> tuple[Float[Array, "K classes"], ResNet]:
        found, params = forward(params, x, batch_norm(mask))
        return affine_each(params.head, found), params

    training = Training(apply, state=statistics) if batch else None
    return Model(init, predict, features, training)
