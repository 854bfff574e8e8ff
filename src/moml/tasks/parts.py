"""Tasks in blocks of ids: block = ceil(n / devices), owner of task i = i // block.

A padded array [devices * block, ...] therefore has task i at index i, on any number of devices.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from moml.data.exact import exact


def as_held(name: str, values: ArrayLike | Array) -> Array | np.ndarray:
    """A jax array as it is; else an array of numbers, whose integers JAX holds exactly."""
    bits = 8 * jax.dtypes.canonicalize_dtype(np.int64).itemsize
    return values if isinstance(values, jax.Array) else exact(name, values, bits)


def on_device(name: str, values: ArrayLike | Array) -> Array:
    """Values as a jax array; integers are exact, or a DataError names the first that is not.

    >>> on_device("x", [1, 2]).tolist()
    [1, 2]
    """
    return jnp.asarray(as_held(name, values))


def block_of(n: int, devices: int) -> int:
    """The number of tasks of a device; the last devices may have fewer.

    >>> block_of(10, 4)
    3
    """
    return -(-n // devices)


def padded(rows: ArrayLike, size: int) -> np.ndarray:
    """The rows, followed by rows of zeros, `size` in all.

    >>> padded([1, 2], 3).tolist()
    [1, 2, 0]
    """
    rows = np.asarray(rows)
    if len(rows) == size:
        return rows
    out = np.zeros((size, *rows.shape[1:]), rows.dtype)
    out[: len(rows)] = rows
    return out


def block_rows(array: Array | np.ndarray, devices: int, which: int) -> np.ndarray:
    """The rows of one device, from an array with a row for each task.

    >>> block_rows(np.arange(5), devices=2, which=1).tolist()
    [3, 4, 0]
    """
    block = block_of(len(array), devices)
    return padded(np.asarray(array)[which * block : (which + 1) * block], block)
