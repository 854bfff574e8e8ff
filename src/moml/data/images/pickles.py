"""An unpickler for CIFAR's batches: dicts of integer arrays, bytes, text and lists, nothing else.

A pickle names the functions it calls. Only those that an array needs are allowed, and they lead to
stand-ins: numpy's own `dtype` and `ndarray` take flags from a pickle that can corrupt memory.
"""

import io
import pickle
import pickletools
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
        _check_memo(raw)
        found = _Unpickler(raw, file).load()
        if not isinstance(found, dict):
            raise TypeError(f"it must hold a dict; got a {type(found).__name__}")
        plain = lambda value: value.value if isinstance(value, _Array) else value
        return {_text(key): plain(value) for key, value in found.items()}
    except DataError:
        raise
    except Exception as error:  # a damaged pickle may fail in any way
        raise DataError(f"{file} is not a pickled batch, or damaged: {error}") from error


def _check_memo(raw: bytes) -> None:
    """Refuse numbers of memo places, and uses of them, that take memory or time without end."""
    places: set[int] = set()
    tuples: set[int] = set()
    last = ""
    for operation, argument, _ in pickletools.genops(raw):
        name = operation.name
        if "PUT" in name or name == "MEMOIZE":
            place = len(places) if argument is None else int(argument)
            if place > len(raw):
                raise ValueError(f"it has {len(raw):,} bytes, but asks for the memo place {place}")
            places.add(place)
            if "TUPLE" in last:
                tuples.add(place)
        if name == "DUP" or ("GET" in name and argument in tuples):
            raise ValueError("a tuple is used twice")  # nested, it would be hashed exponentially
        last = name


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
        self.file, self.left = file, 2 * len(raw)

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        """The stand-in of an allowed name; functions are made anew, as a pickle can alter them."""

        def encode(text: str, _: str) -> bytes:
            self.left -= len(text)
            if self.left < 0:
                raise ValueError("a text is used too often")
            return text.encode("latin-1")

        def from_buffer(raw: bytes | bytearray, dtype: _Dtype, shape: tuple, order: str) -> _Array:
            array = _Array()
            array.__setstate__((1, shape, dtype, order == "F", raw))
            return array

        allowed: dict[str, Callable[..., object]] = {
            "numpy.ndarray": _Array,
            "numpy.dtype": _Dtype,
            "numpy.core.multiarray._reconstruct": lambda *_: _Array(),
            "numpy.core.numeric._frombuffer": from_buffer,  # arrays, in protocol 5
            "_codecs.encode": encode,  # bytes, in protocol 2
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
