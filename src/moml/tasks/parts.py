"""Tasks in blocks of ids: block = ceil(n / devices), owner of task i = i // block.

A padded array [devices * block, ...] therefore has task i at index i, on any number of devices.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree
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


def is_array(values: PyTree) -> bool:
    """Whether values are one array: anything but a dict, a NamedTuple, a tuple of arrays, ...

    >>> is_array([[1, 2]]), is_array((1, 2)), is_array((np.zeros(2), np.ones(2))), is_array({})
    (True, True, False, False)
    """
    if isinstance(values, tuple):
        named = hasattr(values, "_fields")
        return not named and not any(hasattr(v, "ndim") or isinstance(v, dict) for v in values)
    return isinstance(values, list) or jax.tree_util.all_leaves([values])


def held_tree(name: str, values: PyTree) -> PyTree:
    """A pytree of arrays, or one array, as arrays; see `as_held`."""
    one = lambda path, leaf: as_held(name + jax.tree_util.keystr(path), leaf)
    return jax.tree_util.tree_map_with_path(one, values, is_leaf=is_array)


def tree_on_device(name: str, values: PyTree) -> PyTree:
    """A pytree of arrays, or one array, as jax arrays; see `on_device`."""
    return jax.tree.map(jnp.asarray, held_tree(name, values))


def named_leaves(**trees: PyTree) -> list[tuple[str, Array]]:
    """The arrays of some trees, each with its name.

    >>> named_leaves(x={"a": 1.0}, y=2.0)
    [("x['a']", 1.0), ('y', 2.0)]
    """
    leaves = jax.tree_util.tree_leaves_with_path
    return [
        (name + jax.tree_util.keystr(path), leaf)
        for name, tree in trees.items()
        for path, leaf in leaves(tree)
    ]


def same_start(x: PyTree, y: PyTree, axes: int) -> tuple[int, ...] | None:
    """The first axes that all arrays of x and y have; None if they differ or are empty."""
    shapes = {leaf.shape[:axes] for leaf in jax.tree.leaves((x, y))}
    shape = shapes.pop() if jax.tree.leaves(x) and jax.tree.leaves(y) else ()
    return None if shapes or len(shape) < axes or 0 in shape else shape


def shapes_of(tree: PyTree) -> str:
    """The shapes of a tree's arrays, for a message."""
    return str(jax.tree.map(lambda leaf: leaf.shape, tree))


def finite_rows(values: Array, axes: int) -> np.ndarray:
    """Which of the rows along the first axes are finite."""
    good = np.isfinite(np.asarray(values))
    return good.reshape(*good.shape[:axes], -1).all(axis=-1)


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
