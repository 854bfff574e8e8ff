"""Columns of fixed-size lists, such as embeddings: a column of numbers for each place."""

import re
from collections.abc import Iterable, Mapping, Sequence

from moml.data.table.arrow import Arrow, Schema, arrow


def places(type_: Arrow) -> int | None:
    """The length of lists of numbers that all have the same; None of any other type."""
    fixed_size = arrow().types.is_fixed_size_list(type_)
    return type_.list_size if fixed_size and _of_numbers(type_) else None


def fixed(array: Arrow) -> Arrow:
    """Lists of numbers that all have the same length as a type with that length; all else as it is.

    >>> fixed(arrow().array([[1, 2], None, [3, 4]])).type
    FixedSizeListType(fixed_size_list<item: int64>[2])
    """
    pa, types = arrow(), arrow().types
    any_length = types.is_list(array.type) or types.is_large_list(array.type)
    if not any_length or not _of_numbers(array.type):
        return array
    lengths = pa.compute.list_value_length(array).drop_null().unique().to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        return array
    return array.cast(pa.list_(array.type.value_type, lengths[0]))


def _of_numbers(type_: Arrow) -> bool:
    inner = type_.value_type
    return arrow().types.is_integer(inner) or arrow().types.is_floating(inner)


def names_in(schema: Schema) -> dict[str, list[str]]:
    """The columns of a table by those of a schema: itself, or of a list `name[0]`, `name[1]`, ...

    >>> pa = arrow()
    >>> names_in(pa.schema({"age": pa.int64(), "emb": pa.list_(pa.float32(), 2)}))
    {'age': ['age'], 'emb': ['emb[0]', 'emb[1]']}
    """
    return {field.name: _names(field.name, places(field.type)) for field in schema}


def spread(columns: Mapping[str, Arrow]) -> dict[str, Arrow]:
    """The columns with each list as columns of numbers; where a list is missing, all of them are.

    >>> pa = arrow()
    >>> made = spread({"emb": pa.array([[1.0, 2.0], None], pa.list_(pa.float64(), 2))})
    >>> {name: array.to_pylist() for name, array in made.items()}
    {'emb[0]': [1.0, None], 'emb[1]': [2.0, None]}
    """
    found: dict[str, Arrow] = {}
    for name, array in columns.items():
        length = places(array.type)
        if length is None:
            found[name] = array
        else:
            element = arrow().compute.list_element
            each = enumerate(_names(name, length))
            found |= {place: element(array, i) for i, place in each}
    return found


def picked(batch: Arrow, names: Sequence[str]) -> Arrow:
    """A record batch with columns of these names, places of its lists among them."""
    columns = spread(dict(zip(batch.schema.names, batch.columns, strict=True)))
    return arrow().RecordBatch.from_arrays([columns[name] for name in names], list(names))


def expanded(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Names of columns, where that of a list stands for all of its places.

    >>> expanded(["age", "emb"], ["emb[0]", "emb[1]", "age"])
    ['age', 'emb[0]', 'emb[1]']
    """
    known = list(columns)
    of = lambda name: [each for each in known if re.fullmatch(re.escape(name) + r"\[\d+\]", each)]
    return [each for name in names for each in ([name] if name in known else of(name) or [name])]


def _names(name: str, length: int | None) -> list[str]:
    return [name] if length is None else [f"{name}[{i}]" for i in range(length)]
