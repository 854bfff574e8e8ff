"""Named arrays in safetensors files: written in parts, read by mapping the file.

The format: the length of the header (8 bytes), the header (JSON with the type, shape and offsets of
each array), then the arrays, one after the other. Reading a file executes nothing.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
from jaxtyping import PyTree

from moml.atomic import atomic_write, open_plain
from moml.errors import CheckpointError
from moml.storage.files import writing_to

TYPES = {"BOOL": np.dtype("?"), "BF16": np.dtype(ml_dtypes.bfloat16)}
TYPES |= {f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)}
TYPES |= {f"{kind}{8 * n}": np.dtype(f"<{kind.lower()}{n}") for kind in "IU" for n in (1, 2, 4, 8)}
NAMES = {dtype: name for name, dtype in TYPES.items()}
LONGEST_HEADER = 100_000_000  # bytes; the limit of the format's other readers

Shape = tuple[int, ...]
Leaf = np.ndarray | np.generic | jax.Array
Put = Callable[[str, int, Leaf], None]  # array name, first row, rows


@contextmanager
def writing(path: Path, like: Mapping[str, Leaf | jax.ShapeDtypeStruct]) -> Iterator[Put]:
    """Write arrays with the shapes and types of `like`, by a function that puts rows into them."""
    head, ends = _head(like)
    starts = dict(zip(like, ends, strict=False))
    with writing_to(path), atomic_write(path) as file:
        file.write(head)
        file.truncate(len(head) + ends[-1])

        def put(name: str, first: int, rows: Leaf) -> None:
            dtype, (_, *shape) = np.dtype(like[name].dtype), like[name].shape or (1,)
            skipped = first * math.prod(shape) * dtype.itemsize
            file.seek(len(head) + starts[name] + skipped)
            file.write(_bytes(rows, dtype))

        yield put


def _head(like: Mapping[str, Leaf | jax.ShapeDtypeStruct]) -> tuple[bytes, list[int]]:
    """The bytes before the arrays; where each array begins after them, and where the last ends."""
    header, ends = {}, [0]
    for name, array in like.items():
        dtype = np.dtype(array.dtype)
        ends.append(ends[-1] + math.prod(array.shape) * dtype.itemsize)
        header[name] = {"dtype": NAMES[dtype], "shape": [*array.shape], "data_offsets": ends[-2:]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, ends


def _bytes(array: Leaf, dtype: np.dtype) -> memoryview:
    return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data


def arrays_bytes(arrays: Mapping[str, Leaf]) -> bytes:
    """Return the content of a file with these arrays."""
    return b"".join([_head(arrays)[0], *(_bytes(x, np.dtype(x.dtype)) for x in arrays.values())])


def write_arrays(path: Path, arrays: Mapping[str, Leaf]) -> None:
    """Write complete arrays."""
    with writing(path, arrays) as put:
        for name, array in arrays.items():
            put(name, 0, array)


def read_arrays(path: Path, *, mapped: bool = True) -> dict[str, np.ndarray]:
    """Map the arrays of a file, so that bytes are read when they are accessed, or read them all."""

    def array(dtype: np.dtype, shape: Shape, place: int) -> np.ndarray:
        size = math.prod(shape)
        if mapped and size:
            return np.memmap(file, dtype, "r", place, shape)
        file.seek(place)
        return np.fromfile(file, dtype, size).reshape(shape)

    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(LONGEST_HEADER, size - 8):
                raise ValueError("no header")
            places = _places(json.loads(file.read(length)), size - 8 - length)
            return {
                name: array(dtype, shape, 8 + length + begin)
                for name, (dtype, shape, begin) in places.items()
            }
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error


def _places(header: object, size: int) -> dict[str, tuple[np.dtype, Shape, int]]:
    """Type, shape and begin of each array, if the arrays fill `size` bytes without gaps."""
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    header.pop("__metadata__", None)
    places, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, (begin, stop) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, begin, stop))
        bytes_ = math.prod(shape) * dtype.itemsize
        if not whole or begin != end or stop - begin != bytes_ or stop > size:
            raise ValueError(f"array {name} of shape {shape} cannot be at {begin} to {stop}")
        places[name], end = (dtype, tuple(shape), begin), stop
    if end != size:
        raise ValueError(f"{size - end} bytes belong to no array")
    return places


def named_leaves(tree: PyTree, prefix: str = "") -> dict[str, PyTree]:
    """Return the leaves of a tree by their paths.

    >>> named_leaves({"head": {"bias": 1.0}}, "mine")
    {'mine/head/bias': 1.0}
    """
    found = jax.tree_util.tree_leaves_with_path(tree)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
    return {"/".join(filter(None, (prefix, name(path)))): leaf for path, leaf in found}


def filled(like: PyTree, arrays: Mapping[str, np.ndarray], prefix: str = "") -> PyTree:
    """Return a tree of the structure of `like` with the arrays of these names as leaves."""
    names = named_leaves(like, prefix)
    for name in names:
        if name not in arrays:
            raise CheckpointError(f"array {name} is missing: written by another version of moml")
    leaves = [np.asarray(arrays[name]) for name in names]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def leaf_paths(tree: PyTree) -> list[str]:
    """Return the paths of the leaves of a tree, such as `.memory.u['w']`."""
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def leaf_specs(tree: PyTree, leading: int = 0) -> list[str]:
    """Describe leaves, without some leading axes: `.memory.u['w'] float32[10, 40]`."""
    each = zip(leaf_paths(tree), jax.tree.leaves(tree), strict=True)
    return [f"{path} {leaf.dtype}{list(leaf.shape[leading:])}".strip() for path, leaf in each]
