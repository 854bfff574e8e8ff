"""beartype for jaxtyping's hook, at one price for each signature.

jaxtyping gives a function that does nothing but has the signature to check. Functions inside
functions have the same one at each call of the outer, where beartype would write its code anew.
"""

from collections.abc import Callable, Hashable
from types import FunctionType

from beartype import beartype

_checked: dict[Hashable, Callable] = {}


def checked(function: FunctionType) -> Callable:
    """What beartype makes of the function, or made of one with the same signature."""
    code = function.__code__
    annotations = tuple(function.__annotations__.items())
    names = function.__module__, function.__qualname__, code.co_varnames, code.co_code
    kinds = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    optional = len(function.__defaults__ or ()), frozenset(function.__kwdefaults__ or ())
    key = names, kinds, optional, annotations
    try:
        hash(key)
    except TypeError:  # an annotation with a list
        return beartype(function)
    if key not in _checked:
        _checked[key] = beartype(function)
    return _checked[key]
