"""Functions that are kept, so that a second call with the same ones compiles nothing.

JAX finds a compiled program by the identity of its function.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
KEPT = 128  # results of one function; the least recently used are dropped


def kept(build: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that builds functions or programs: equal arguments give the same one.

    Functions are equal if they are the same object; 1 and 1.0 differ. Arguments that cannot be
    hashed build anew.

    >>> double = kept(lambda f: lambda x: 2 * f(x))
    >>> double(abs) is double(abs), double(abs) is double(int)
    (True, False)
    >>> times = kept(lambda n: lambda x: n * x)
    >>> times(1) is times(1.0)
    False
    """
    cached = lru_cache(maxsize=KEPT, typed=True)(build)

    @wraps(build)
    def program(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            hash((args, tuple(kwargs.values())))
        except TypeError:
            return build(*args, **kwargs)
        return cached(*args, **kwargs)  # type: ignore[arg-type]

    return program
