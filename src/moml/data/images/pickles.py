"""Pickled arrays, lists and dicts, read without running anything a pickle asks for.

A pickle is a program: it names functions and calls them. Here the few names that an array needs
lead to stand-ins of our own, which do nothing but keep bytes; any other name is refused.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from moml.errors import DataError

INTEGERS = {f"{sign}{width}" for sign in "iu" for width in (1, 2, 4, 8)}


def loads(raw: bytes, file: str) -> dict[str, Any]:
    """The dict of a pickle; arrays of integers, bytes, text, lists and dicts may be in it.

    >>> loads(pickle.dumps({"labels": [3, 1]}, 2), "batch")
    {'labels': [3, 1]}
    """
    try:
        found = _Reader(raw, file).load()
        if not isinstance(found, dict):
            raise TypeError(f"it holds no dict but a {type(found).__name__}")
        return {_text(key): _value(value) for key, value in found.items()}
    except DataError:
        raise
    except Exception as error:  # a damaged pickle may fail in any way
        raise DataError(f"{file} is no pickled batch, or damaged: {error}") from error


class _Reader(pickle.Unpickler):
    def __init__(self, raw: bytes, file: str):
        super().__init__(io.BytesIO(raw), encoding="bytes")  # Python 2's strings stay bytes
        self.file = file

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get(f"{module}.{name}")
        if known is None:
            raise DataError(
                f"{self.file} is refused: its pickle asks for {module}.{name}; "
                "only plain arrays, lists and dicts are read"
            )
        return known


class _Array:
    """Stands in for numpy.ndarray."""

    value: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        flat = np.frombuffer(raw, dtype.exact())
        self.value = flat.reshape(shape, order="F" if fortran else "C")


class _Dtype:
    """Stands in for numpy.dtype; whole numbers alone."""

    def __init__(self, code: Any, *_: Any):
        self.code = _text(code).lstrip("<>=|")
        self.order = "<" if _text(code)[:1] not in "<>" else _text(code)[0]
        if self.code not in INTEGERS:
            raise ValueError(f"an array of type {self.code!r}; allowed are whole numbers")

    def __setstate__(self, state: Any) -> None:
        self.order = ">" if _text(state[1]) == ">" else "<"

    def exact(self) -> np.dtype:
        return np.dtype(self.order + self.code)


class _Call:
    """Stands in for a function; a pickle can call it and cannot change it."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise TypeError("it tries to change a function")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, codec: Any) -> bytes:
    """How Python 3 writes bytes in protocol 2."""
    if _text(codec) not in ("latin1", "latin-1"):
        raise ValueError(f"bytes in the code {codec!r}")
    return text.encode("latin-1")


def _from_buffer(raw: Any, dtype: _Dtype, shape: Any, order: Any) -> _Array:
    """How numpy writes an array in protocol 5."""
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", raw))
    return array


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _value(value: Any) -> Any:
    return value.value if isinstance(value, _Array) else value


_KNOWN: dict[str, Any] = {
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
    "_codecs.encode": _Call(_encode),
}
for _core in ("numpy.core", "numpy._core"):  # before and since numpy 2
    _KNOWN[f"{_core}.multiarray._reconstruct"] = _Call(_reconstruct)
    _KNOWN[f"{_core}.numeric._frombuffer"] = _Call(_from_buffer)
