"""Arrow arrays to numpy, a record batch at a time."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from moml.errors import DataError

# pyarrow is imported where it is used, so its types have names here
Arrow = Any  # an array, a record batch, a table, a data type
Schema = Any

INEXACT = "is a float too large for an id or a class; store them as whole numbers or as texts"
MISSING = {
    "number": np.float32(np.nan),
    "flag": np.float32(np.nan),
    "time": np.datetime64("NaT", "us"),
    "text": np.int32(-1),
}


class Chunk(NamedTuple):
    """Some rows of a column: number, flag, time (numpy arrays) or text (a dictionary array).

    Kind "empty" is `rows` missing values; of kind "refused" `values` is the name of its type.
    """

    kind: str
    values: Arrow
    rows: int


def arrow() -> ModuleType:
    """The module pyarrow, or a DataError that says how to get it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
    except ImportError as error:
        raise DataError("tables need pyarrow: pip install 'moml[table]'") from error
    return pyarrow


def chunk_of(array: Arrow, as_text: bool, name: str = "") -> Chunk:
    """A chunk from an arrow array, or from a chunked one, of the column `name`."""
    pa = arrow()
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    types, given, rows = pa.types, array.type, len(array)
    if isinstance(array, pa.ExtensionArray):
        return chunk_of(array.storage, as_text, name)
    if array.null_count == rows:
        return Chunk("empty", None, rows)
    if _is_text(given) or (types.is_dictionary(given) and _is_text(given.value_type)):
        return Chunk("text", _coded(array), rows)
    if types.is_dictionary(given):  # whole numbers are categories, as of pandas; floats are not
        categories = types.is_integer(given.value_type)
        return chunk_of(array.dictionary_decode(), as_text or categories, name)
    if types.is_boolean(given):
        if as_text:
            return Chunk("text", _coded(array.cast(pa.string())), rows)
        numbers = array.cast(pa.uint8()).cast(pa.float32())
        return Chunk("flag", numbers.to_numpy(zero_copy_only=False), rows)
    if types.is_date(given) or types.is_timestamp(given):
        zone = given.tz if types.is_timestamp(given) else None
        whole = pa.compute.CastOptions(pa.timestamp("us", zone), allow_time_truncate=not as_text)
        moments = pa.compute.cast(array, options=whole)
        if as_text:
            return Chunk("text", _coded(moments.cast(pa.string())), rows)
        return Chunk("time", moments.to_numpy(zero_copy_only=False).astype("M8[us]"), rows)
    if types.is_time(given) or types.is_duration(given):
        unit = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[given.unit]
        counts = array.cast(pa.int32() if given.bit_width == 32 else pa.int64())
        return Chunk("number", counts.to_numpy(zero_copy_only=False) / unit, rows)
    if types.is_decimal(given) and as_text:  # 7.50 as 7.5, as a float is
        texts = pa.compute.replace_substring_regex(array.cast(pa.string()), r"(\.\d*?)0+$", r"\1")
        return Chunk("text", _coded(pa.compute.utf8_rtrim(texts, ".")), rows)
    if types.is_decimal(given) or types.is_float16(given):
        wider = pa.float64() if types.is_decimal(given) else pa.float32()
        return chunk_of(array.cast(wider), as_text, name)
    if types.is_integer(given) or types.is_floating(given):
        if as_text:
            return Chunk("text", _numbers_coded(array, name), rows)
        return Chunk("number", array.to_numpy(zero_copy_only=False), rows)
    return Chunk("refused", str(given), rows)


def missing_at(chunk: Chunk, na: Sequence[str]) -> Chunk:
    """The chunk with these texts, or the numbers that they are, as missing values.

    >>> missing_at(Chunk("number", np.array([1, -999]), 2), ["-999"]).values.tolist()
    [1.0, nan]
    """
    pa = arrow()
    if chunk.kind == "text":
        coded = chunk.values
        trimmed = pa.compute.utf8_trim_whitespace(coded.dictionary)
        gone = pa.compute.is_in(trimmed, pa.array(na, pa.string())).to_numpy(False)
        codes = coded.indices.fill_null(-1).to_numpy()
        lost = np.append(gone, True)[codes]
        indices = pa.array(codes, mask=lost)
        return chunk._replace(values=pa.DictionaryArray.from_arrays(indices, coded.dictionary))
    numbers = [float(word) for word in na if _is_float(word)]
    if chunk.kind == "number" and numbers:
        lost = np.isin(chunk.values, numbers)
        if lost.any():
            return chunk._replace(values=np.where(lost, np.nan, chunk.values))
    return chunk


def _is_float(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def joined(chunks: Sequence[Chunk], dates: bool) -> tuple[str, np.ndarray, Arrow]:
    """Kind, values and words of a column from its chunks, which are empty or of one kind.

    With `dates`, texts that all are dates of the form 2024-12-31 become times.
    """
    kind = next((chunk.kind for chunk in chunks if chunk.kind != "empty"), "number")
    if kind == "text":
        return _texts(chunks, dates)
    fill = lambda chunk: np.full(chunk.rows, MISSING[kind])
    parts = [fill(chunk) if chunk.kind == "empty" else chunk.values for chunk in chunks]
    values = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return kind, values, None


def number_word(value: np.floating | np.integer) -> str:
    """A number of numpy as a text: 7.0 is '7'.

    >>> number_word(np.float32(7)), number_word(np.float32(0.1))
    ('7', '0.1')
    """
    whole = value.dtype.kind == "f" and abs(value) < 1e16 and value % 1 == 0
    return f"{value:.0f}" if whole else str(value)


def inexact(values: np.ndarray) -> Bool[np.ndarray, " rows"]:
    """Which are floats so large that they may stand for several whole numbers."""
    if values.dtype.kind != "f":
        return np.zeros(len(values), bool)
    return np.abs(values) >= 2.0 ** (np.finfo(values.dtype).nmant + 1)


def unified(chunks: Sequence[Chunk]) -> tuple[Int32[np.ndarray, " rows"], Arrow]:
    """The codes of a text column, -1 where it is missing, and the words they stand for."""
    pa = arrow()
    coded = [chunk.values for chunk in chunks if chunk.kind == "text"]
    parts = pa.chunked_array(coded).unify_dictionaries().chunks
    codes = (part.indices.fill_null(-1).to_numpy() for part in parts)
    fill = lambda chunk: np.full(chunk.rows, MISSING["text"])
    found = [next(codes) if chunk.kind == "text" else fill(chunk) for chunk in chunks]
    return np.concatenate(found), parts[-1].dictionary


def cast(words: Arrow, type_: Arrow) -> Arrow | None:
    """The words as values of this type; None if they are not all of it."""
    try:
        words[:1].cast(type_)  # refuses most columns at once
        return words.cast(type_)
    except arrow().ArrowInvalid:
        return None


def _texts(chunks: Sequence[Chunk], dates: bool) -> tuple[str, np.ndarray, Arrow]:
    pa, (values, words) = arrow(), unified(chunks)
    blank = pa.compute.equal(pa.compute.utf8_trim_whitespace(words), "").to_numpy(False)
    if blank.any():
        values = np.where(np.append(blank, False)[values], np.int32(-1), values)
    known = words.filter(~blank)
    for zone in (None, "UTC") if dates and len(known) else ():
        moments = cast(known, pa.timestamp("us", zone))
        if moments is not None:
            at = np.full(len(words) + 1, np.datetime64("NaT"), "M8[us]")
            at[:-1][~blank] = moments.to_numpy(zero_copy_only=False).astype("M8[us]")
            return "time", at[values], None
    return "text", values, words


def _is_text(given: Arrow) -> bool:
    types = arrow().types
    return types.is_string(given) or types.is_large_string(given) or types.is_string_view(given)


def _coded(array: Arrow) -> Arrow:
    pa = arrow()
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return coded.cast(pa.dictionary(pa.int32(), pa.string()))


def _numbers_coded(array: Arrow, name: str) -> Arrow:
    """Numbers as texts, the same whether stored as whole numbers or not."""
    pa = arrow()
    if not pa.types.is_floating(array.type):
        coded = array.dictionary_encode()
        texts = coded.dictionary.cast(pa.string())
    else:
        coded = pa.compute.if_else(pa.compute.is_nan(array), None, array).dictionary_encode()
        values = coded.dictionary.to_numpy()
        for value in values[inexact(values)][:1]:
            raise DataError(f"column {name}: {value} {INEXACT}")
        texts = pa.array(map(number_word, values), pa.string())
    return _coded(pa.DictionaryArray.from_arrays(coded.indices, texts))
