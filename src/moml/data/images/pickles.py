"""An unpickler for CIFAR's batches: dicts of integer arrays, bytes, text and lists, nothing else.

A pickle names the functions it calls. Only those that an array needs are allowed, and they lead to
stand-ins: numpy's own `dtype` and `ndarray` take flags from a pickle that can corrupt memory.
"""

import io
import pickle
from collections.abc import Callable

import numpy as np

from moml.errors import DataError

INTEGERS = {f"{sign}{width}" for sign in "iu" for width in (1, 2, 4, 8)}


def loads(raw: bytes, file: str) -> dict[str, object]:
    """The dict of a pickle; `file` names it in errors.

    >>> loads(pickle.dumps({"labels": [3, 1]}, 2), "batch")
    {'labels': [3, 1]}
    """
    try:
        found = _Unpickler(raw, file).load()
        if not isinstance(found, dict):
            raise TypeError(f"it must hold a dict; got a {type(found).__name__}")
        plain = lambda value: value.value if isinstance(value, _Array) else value
        return {_text(key): plain(value) for key, value in found.items()}
    except DataError:
        raise
    except Exception as error:  # a damaged pickle may fail in any way
        raise DataError(f"{file} is not a pickled batch, or damaged: {error}") from error


class _Array:
    """Stands in for numpy.ndarray."""

    value: np.ndarray

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, fortran, raw = state
        flat = np.frombuffer(raw, dtype.order + dtype.code)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


class _Dtype:
    """Stands in for numpy.dtype; integers only."""

    def __init__(self, code: str | bytes, *_: object):
        self.code = _text(code).lstrip("<>=|")
        self.order = ">" if _text(code).startswith(">") else "<"
        if self.code not in INTEGERS:
            raise ValueError(f"arrays must be of integers; got type {self.code!r}")

    def __setstate__(self, state: tuple) -> None:
        self.order = ">" if _text(state[1]) == ">" else "<"


class _Unpickler(pickle.Unpickler):
    def __init__(self, raw: bytes, file: str):
        super().__init__(io.BytesIO(raw), encoding="bytes")  # Python 2's strings stay bytes
        self.file = file

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        """The stand-in of an allowed name; functions are made anew, as a pickle can alter them."""

        def from_buffer(raw: bytes | bytearray, dtype: _Dtype, shape: tuple, order: str) -> _Array:
            array = _Array()
            array.__setstate__((1, shape, dtype, order == "F", raw))
            return array

        allowed: dict[str, Callable[..., object]] = {
            "numpy.ndarray": _Array,
            "numpy.dtype": _Dtype,
            "numpy.core.multiarray._reconstruct": lambda *_: _Array(),
            "numpy.core.numeric._frombuffer": from_buffer,  # arrays, in protocol 5
            "_codecs.encode": lambda text, _: text.encode("latin-1"),  # bytes, in protocol 2
        }
        known = allowed.get(f"{module.replace('numpy._core', 'numpy.core')}.{name}")
        if known is None:
            raise DataError(
                f"{self.file} is refused: its pickle asks for {module}.{name}; "
                "only plain arrays, lists and dicts are read"
            )
        return known


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
