"""What a method's signature says: the kinds and ranges of its keywords, their defaults and help."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import optax

from moml.algorithms.parts.adapt import Leaves
from moml.algorithms.parts.optimizer import OPTIMIZERS
from moml.errors import ConfigError
from moml.types import Adapt


class Allowed(NamedTuple):
    """Which values a keyword may have."""

    text: str  # follows "must be"
    holds: Callable[[Any], bool] = lambda value: True
    kind: type | None = None  # int, float, bool or str: of what files and commands may give
    other: Callable[[Any], bool] = lambda value: False  # values that only Python can give
    words: tuple[str, ...] = ()  # that stand for a value of the kind


Count = Annotated[int, Allowed("a whole number from 1", lambda x: x >= 1, int)]
Positive = Annotated[float, Allowed("positive", lambda x: 0 < x < math.inf, float)]
NonNegative = Annotated[float, Allowed("at least 0", lambda x: 0 <= x < math.inf, float)]
Weight = Annotated[float, Allowed("in (0, 1]", lambda x: 0 < x <= 1, float)]
AUTO, RULE = "auto", "rule"
ChosenWeight = Annotated[
    float | str,
    Allowed("in (0, 1], auto or rule", lambda x: 0 < x <= 1, float, words=(AUTO, RULE)),
]
Probability = Annotated[float, Allowed("in [0, 1]", lambda x: 0 <= x <= 1, float)]
Below1 = Annotated[float, Allowed("in [0, 1)", lambda x: 0 <= x < 1, float)]
Curvature = Literal["exact", "first-order", "finite-difference"]
StepSizes = Literal["given", "parameter", "layer"]
MemoryDtype = Literal["float32", "bfloat16"]
Adaptation = Callable[[int], Adapt]  # number of steps -> the adaptation


def _transformation(value: object) -> bool:
    return isinstance(value, optax.GradientTransformation)


Optimizer = Annotated[
    str | optax.GradientTransformation | Callable[[Any], optax.GradientTransformation],
    Allowed(
        "sgd, adam, an optax transformation or a function eta -> transformation",
        OPTIMIZERS.__contains__,
        str,
        lambda x: _transformation(x) or callable(x),
    ),
]
Transformation = Annotated[
    optax.GradientTransformation, Allowed("an optax transformation", _transformation)
]
Chosen = Annotated[Leaves, Allowed('a function such as moml.parts.named("head")', callable)]


def _pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return text != "" and text.isprintable()


PrivateLeaves = Annotated[
    str | Leaves,
    Allowed(
        'a regular expression of leaf names such as "head", or a function such as moml.parts.named',
        _pattern,
        kind=str,
        other=callable,
    ),
]
Tied = Annotated[
    bool | Leaves,
    Allowed(
        'true, false or a function such as moml.parts.named("head")', kind=bool, other=callable
    ),
]
Function = Annotated[Callable[..., Any], Allowed("a function", callable)]
_PLAIN = {
    int: Allowed("a whole number", kind=int),
    float: Allowed("a number", kind=float),
    bool: Allowed("true or false", kind=bool),
    str: Allowed("text", kind=str),
}


class Keyword(NamedTuple):
    """One keyword of a method."""

    allowed: Allowed
    optional: bool  # whether it may be None
    default: Any
    required: bool
    help: str


NUMBER = Keyword(_PLAIN[float], False, None, False, "")


def _allowed(hint: Any) -> Allowed:
    """The values that an annotation allows."""
    if get_origin(hint) is Annotated:
        return next(extra for extra in hint.__metadata__ if isinstance(extra, Allowed))
    if get_origin(hint) is Literal:
        words = get_args(hint)
        return Allowed(f"one of {', '.join(words)}", words.__contains__, str)
    return _PLAIN.get(hint, Allowed("anything"))


class Group:
    """Base of dataclasses of keywords: a parameter of such a type stands for its fields."""


def is_group(parameter: inspect.Parameter) -> bool:
    """Whether a parameter stands for a group of keywords."""
    return isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Group)


def signature(factory: Callable[..., Any]) -> inspect.Signature:
    """The signature of a method's factory, with the keywords of its groups in their places."""
    given = inspect.signature(factory, eval_str=True)
    found = []
    for parameter in given.parameters.values():
        found += _of_group(parameter) if is_group(parameter) else [parameter]
    return given.replace(parameters=found)


def _of_group(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The keywords of a group; a default group has their defaults."""
    group, empty, found = parameter.annotation, inspect.Parameter.empty, []
    for name, hint in get_type_hints(group, include_extras=True).items():
        default = getattr(group if parameter.default is empty else parameter.default, name, empty)
        found.append(parameter.replace(name=name, annotation=hint, default=default))
    return found


@cache
def keywords(factory: Callable[..., Any]) -> Mapping[str, Keyword]:
    """The keywords of a method's factory, from its signature and its docstring.

    >>> def mine(loss, *, k: Count = 1, beta: Weight = 0.3): ...
    >>> keywords(mine)["beta"].allowed.text
    'in (0, 1]'
    """
    function = getattr(factory, "func", factory)  # of a partial
    return keywords_in(signature(factory), function.__doc__ or "")


def keywords_in(given: inspect.Signature, doc: str) -> dict[str, Keyword]:
    """The keywords of a signature, with their help from a docstring."""
    texts, found = parameters(doc), {}
    for name, parameter in given.parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        hint = parameter.annotation
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        optional = type(None) in get_args(hint)
        alone = kinds[0] if optional and len(kinds) == 1 else hint
        required = parameter.default is inspect.Parameter.empty
        default = None if required else parameter.default
        found[name] = Keyword(_allowed(alone), optional, default, required, texts.get(name, ""))
    return found


def options(factory: Callable[..., Any]) -> dict[str, Keyword]:
    """Those that a file or a command may give: numbers, flags and words, but not n."""
    known = keywords(factory).items()
    return {name: word for name, word in known if word.allowed.kind is not None and name != "n"}


def checked(name: str, keyword: Keyword, value: Any) -> Any:
    """The value of a keyword as its kind has it, or a ConfigError.

    >>> checked("beta", Keyword(_allowed(Weight), False, 0.3, False, ""), 1.5)
    Traceback (most recent call last):
        ...
    moml.errors.ConfigError: beta must be in (0, 1]; got 1.5
    """
    allowed = keyword.allowed
    if (value is None and keyword.optional) or allowed.other(value):
        return value
    if isinstance(value, str) and value in allowed.words:
        return value
    if not isinstance(value, _types(allowed.kind)) or (
        allowed.kind is not bool and isinstance(value, bool)
    ):
        number = allowed.kind is float and not allowed.text.startswith("a number")
        raise ConfigError(
            f"{name} must be {'a number, ' if number else ''}{allowed.text}; got {value!r}"
        )
    if not allowed.holds(value):
        raise ConfigError(f"{name} must be {allowed.text}; got {value!r}")
    return value if allowed.kind is None else allowed.kind(value)


def _types(kind: type | None) -> Any:
    return {int: Integral, float: Real}.get(kind, kind) if kind else object


def unknown(method: str, name: str, known: Mapping[str, Any]) -> ConfigError:
    """The error for an option that a method does not have."""
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
    return ConfigError(f"{method} has no option {name!r}; {hint}")


_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


def sections(doc: str) -> dict[str, str]:
    """A numpy docstring by its sections; what comes before them is under ""."""
    first, *rest = _SECTION.split(inspect.cleandoc(doc))
    return {"": first} | dict(zip(rest[::2], rest[1::2], strict=True))


def parameters(doc: str) -> dict[str, str]:
    """The help of each parameter in a numpy docstring, in one line each.

    >>> parameters('''Summary.
    ...
    ... Parameters
    ... ----------
    ... k : int
    ...     Samples in each
    ...     of S1 and S3.
    ... ''')
    {'k': 'Samples in each of S1 and S3.'}
    """
    block = sections(doc).get("Parameters", "")
    entries = re.findall(r"^(\w+) ?:.*\n((?:    .*\n?|\n)+)", block, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
