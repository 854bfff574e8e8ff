"""Named arrays in a safetensors file, written and read in parts: no more of it in memory than that.

The format is a length (8 bytes), that many bytes of JSON with each array's type, shape and place,
and then the arrays, one after the other. Reading it runs nothing.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from moml.errors import CheckpointError, ConfigError

TYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "BOOL": "|b1"}
LONGEST = 100_000_000  # bytes of a header, as the format's own readers allow
NAMES = {np.dtype(code): name for name, code in TYPES.items()}

Put = Callable[[str, int, Any], None]  # name, first row, rows


class Place(NamedTuple):
    """Where an array lies, after the header of its file."""

    kind: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def places(header: Any, size: int) -> dict[str, Place]:
    """The arrays of a safetensors file by its header, if they fill its `size` bytes one by one."""
    header.pop("__metadata__", None)
    found: dict[str, Place] = {}
    end = 0
    for name, told in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        kind, shape = np.dtype(TYPES[told["dtype"]]), told["shape"]
        begin, stop = told["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, stop)):
            raise ValueError(f"the array {name} of shape {shape} cannot be at {begin} to {stop}")
        if begin != end or stop - begin != math.prod(shape) * kind.itemsize or stop > size:
            raise ValueError(f"the array {name} of shape {shape} cannot be at {begin} to {stop}")
        found[name], end = Place(kind, tuple(shape), begin, stop), stop
    if end != size:
        raise ValueError(f"{size - end} bytes belong to no array")
    return found


@contextmanager
def writing(path: Path, like: Mapping[str, Any]) -> Iterator[Put]:
    """A function that puts rows into the arrays, which have the shapes and types of `like`."""
    header: dict[str, Any] = {}
    place = 0
    for name, array in like.items():
        end = place + math.prod(array.shape) * np.dtype(array.dtype).itemsize
        kind = NAMES[np.dtype(array.dtype)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [place, end]}
        place = end
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    try:
        with open(path, "wb") as file:
            file.write(len(words).to_bytes(8, "little") + words)
            file.truncate(8 + len(words) + place)

            def put(name: str, first: int, rows: Any) -> None:
                size = math.prod(like[name].shape[1:]) * np.dtype(like[name].dtype).itemsize
                file.seek(8 + len(words) + header[name]["data_offsets"][0] + first * size)
                file.write(np.ascontiguousarray(rows, like[name].dtype).tobytes())

            yield put
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Arrays to a file, all at once."""
    with writing(path, arrays) as put:
        for name, array in arrays.items():
            put(name, 0, array)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, each read from it where it is looked at."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(LONGEST, size - 8):
                raise ValueError("no header")
            header = json.loads(file.read(length))
        first = 8 + length
        return {
            name: _mapped(path, first, place)
            for name, place in places(header, size - first).items()
        }
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is no safetensors file: {error}") from error


def _mapped(path: Path, first: int, place: Place) -> np.ndarray:
    if place.begin == place.end:
        return np.zeros(place.shape, place.kind)
    return np.memmap(path, place.kind, "r", first + place.begin, place.shape)


def named_leaves(tree: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of a tree by their paths.

    >>> named_leaves({"head": {"bias": 1.0}}, "mine")
    {'mine/head/bias': 1.0}
    """
    found = jax.tree_util.tree_leaves_with_path(tree)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
    return {"/".join(filter(None, (prefix, name(path)))): leaf for path, leaf in found}


def filled(like: Any, arrays: Mapping[str, Any], prefix: str = "") -> Any:
    """A tree of the form of `like` with the arrays of these names."""
    names = named_leaves(like, prefix)
    for name in names:
        if name not in arrays:
            raise CheckpointError(f"the array {name} is missing: other arrays than this moml's")
    leaves = [np.asarray(arrays[name]) for name in names]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
