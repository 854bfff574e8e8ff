"""Convolutions as products of patches, and max-pooling: fast under vmap with weights of each task.

XLA runs a convolution with the weights of each client group by group. The same rows as one batched
matrix product take a tenth of the time (`benchmarks/bench_conv.py`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.types import Key

Images = Float[Array, "K height width channels"]
Maps = Float[Array, "K smaller_h smaller_w out"]


class Convolution(NamedTuple):
    """A convolution with an offset: rows of the weight are those of `patches`."""

    weight: Float[Array, "patch out"]
    bias: Float[Array, " out"]


def filters(key: Key, kernel: int, inputs: int, outputs: int) -> Float[Array, "patch out"]:
    """Weights of a convolution from U(-1, 1) / sqrt(kernel^2 * inputs), PyTorch's default."""
    patch = kernel * kernel * inputs
    limit = patch**-0.5
    return jax.random.uniform(key, (patch, outputs), minval=-limit, maxval=limit)


def patches(x: Images, kernel: int, *, stride: int = 1, padding: int = 0) -> Maps:
    """The neighbourhoods of kernel x kernel pixels, as rows [K, h, w, kernel * kernel * channels].

    A row has its pixels line by line, the channels of a pixel side by side.

    Parameters
    ----------
    x
        Images.
    kernel, stride
        Pixels on a side of a neighbourhood, and from one neighbourhood to the next.
    padding
        Zeros around an image: h = (height + 2 padding - kernel) // stride + 1.

    >>> patches(jnp.arange(9.0).reshape(1, 3, 3, 1), 2)[0, 0].tolist()
    [[0.0, 1.0, 3.0, 4.0], [1.0, 2.0, 4.0, 5.0]]
    """
    if padding:
        x = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    high, wide = (side - kernel + 1 for side in x.shape[1:3])
    # columns, then lines: two copies from few places instead of one from kernel^2
    x = jnp.concatenate([x[:, :, j : j + wide : stride] for j in range(kernel)], axis=-1)
    return jnp.concatenate([x[:, i : i + high : stride] for i in range(kernel)], axis=-1)


def convolve(
    x: Images, weight: Float[Array, "patch out"], kernel: int, *, stride: int = 1, padding: int = 0
) -> Maps:
    """The convolution of images, patches(x) weight: one matrix product.

    Parameters
    ----------
    x, weight
        Images, and filters [kernel * kernel * channels, out]: a kernel [kernel, kernel, channels,
        out] as `jax.lax.conv_general_dilated` takes it, reshaped.
    kernel, stride, padding
        See `patches`.

    >>> y = convolve(jnp.ones((1, 5, 5, 2)), jnp.ones((18, 1)), 3, stride=2, padding=1)
    >>> y[0, :, 1, 0].tolist()
    [12.0, 18.0, 12.0]
    """
    return patches(x, kernel, stride=stride, padding=padding) @ weight


def max_pool(x: Images) -> Maps:
    """The largest of each 2 x 2 pixels; a last odd row or column is left out.

    Pixels that tie for the largest share its gradient equally, as in `jax.numpy.max`.

    >>> max_pool(jnp.arange(15.0).reshape(1, 3, 5, 1))[0, :, :, 0].tolist()
    [[6.0, 8.0]]
    """
    count, high, wide, channels = len(x), x.shape[1] // 2, x.shape[2] // 2, x.shape[3]
    x = x[:, : 2 * high, : 2 * wide]
    return jnp.max(x.reshape(count, high, 2, wide, 2, channels), axis=(2, 4))
