"""Numbers as users give them: integers are exact or refused, floats may round."""

import numpy as np

from moml.errors import DataError


def exact(name: str, values: object, bits: int = 64) -> np.ndarray:
    """Values as an array of numbers; an integer that `bits` bits do not hold is a DataError.

    >>> exact("x", [[1], [1700000000000]], bits=32)
    Traceback (most recent call last):
        ...
    moml.errors.DataError: x[1, 0] = 1700000000000 does not fit int32; enable x64 \
(JAX_ENABLE_X64=1) or pass floats
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind == "f" and not hasattr(values, "dtype"):
            array = _unrounded(array, values)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{name} must be an array of numbers: {error}") from error
    if array.dtype.kind == "O" and all(type(value) is int for value in array.flat):
        hint = "does not fit 64-bit integers beside the others; pass floats, or texts as ids"
        if (large := abs(array) >= 2**63).any():
            _refuse(name, array, large, hint)
    if array.dtype.kind in "OMmSU" or array.dtype.names:
        first = f" with {array.ravel().tolist()[0]!r}" if array.size else ""
        raise DataError(f"{name} must be an array of numbers; got type {array.dtype}{first}")
    if array.dtype.kind in "iu" and array.itemsize * 8 > bits and array.size:
        most = np.iinfo(f"{array.dtype.kind}{bits // 8}")
        if array.min() < most.min or array.max() > most.max:
            hint = f"does not fit {most.dtype}; enable x64 (JAX_ENABLE_X64=1) or pass floats"
            _refuse(name, array, (array < most.min) | (array > most.max), hint)
    return array


def _unrounded(array: np.ndarray, values: object) -> np.ndarray:
    """The same numbers; integers that became floats as uint64, or else as objects."""
    if not (np.abs(array) >= 2.0**63).any():
        return array
    given = np.array(values, object)
    if not all(isinstance(value, int | np.integer) for value in given.flat):
        return array
    whole = np.vectorize(int, otypes=[object])(given)
    return whole.astype(np.uint64) if whole.min() >= 0 and whole.max() < 2**64 else whole


def _refuse(name: str, array: np.ndarray, bad: np.ndarray, hint: str) -> None:
    """Raise for the first bad value."""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    raise DataError(f"{name}[{', '.join(map(str, at))}] = {array[at]} {hint}")
