"""Values of fields: whole numbers, numbers, texts, lists; checked by the field's type."""

from collections.abc import Mapping
from dataclasses import fields, replace
from numbers import Real
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np

from moml.errors import ConfigError, check_count

T = TypeVar("T")
WORDS = {float: "a number", bool: "true or false", str: "text"}
LISTS = {tuple[int, ...]: "whole numbers", tuple[str, ...]: "texts"}
FROM_0 = {"seed", "score_every", "unseen"}  # other whole numbers are from 1, or from their default
SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def value_of(name: str, kind: Any, value: Any, least: int = 1) -> Any:
    """`value` as a field of this type holds it, or a ConfigError that names the field."""
    if isinstance(kind, UnionType):  # a type, or None
        return None if value is None else value_of(name, get_args(kind)[0], value, least)
    if kind in LISTS:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} must be a list of {LISTS[kind]}; got {value!r}")
        return tuple(value_of(name, get_args(kind)[0], each) for each in value)
    if kind is int:
        return check_count(name, value, least=least, below=2**32 if name == "seed" else 2**31)
    if kind is float and isinstance(value, Real) and not isinstance(value, bool):
        size: Any = abs(value)
        if size != 0 and not SMALLEST <= size <= LARGEST:
            raise ConfigError(f"{name} must be a number that float32 holds; got {value!r}")
        return float(value)
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {WORDS[kind]}; got {value!r}")
    return value


def values_of(part: type, given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values for fields of a dataclass, each as its field holds it."""
    kinds = get_type_hints(part)
    default: dict[str, Any] = {f.name: f.default for f in fields(part)}

    def value(name: str) -> Any:
        least = min(1, default[name]) if type(default[name]) is int else 1
        least = 0 if name in FROM_0 else least
        return value_of(prefix + name, kinds[name], given[name], least)

    return {name: value(name) for name in given}


def typed(part: T, prefix: str = "", apart: tuple[str, ...] = ()) -> T:
    """The same dataclass with values as its fields hold them; some fields are left as they are."""
    names = [f.name for f in fields(part) if f.name not in apart]  # type: ignore[arg-type]
    values = values_of(type(part), {name: getattr(part, name) for name in names}, prefix)
    return replace(part, **values)  # type: ignore[type-var]
