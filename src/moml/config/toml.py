"""A configuration as a TOML file: read, written with a word on every field, found by name."""

import ast
import inspect
import json
import tomllib
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import Any, get_type_hints

from moml.config.config import PROBLEMS, Config, check, kind_of, value_of
from moml.config.starts import STARTS
from moml.errors import ConfigError

HEAD = """\
# A run of moml: moml train THIS_FILE --out RUN
# A field that is left out, like those behind a #, has its default.
"""


def words(part: type) -> dict[str, str]:
    """What is written under each field of a dataclass, in one line.

    >>> words(Config)["k"]
    'Samples in each of S1, S2, S3; in episodes, of each class; from 1.'
    """
    (definition,) = ast.parse(inspect.getsource(part)).body
    texts = {}
    for statement, below in pairwise(definition.body):  # type: ignore[attr-defined]
        match statement, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                texts[name] = " ".join(text.split())
    return texts


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():  # JSON's escapes are TOML's, but for the last of the control characters
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            return repr(value)


def _comment(text: str) -> str:
    return fill(text, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _lines(part: Any) -> str:
    lines = []
    for name, text in words(type(part)).items():
        value = getattr(part, name)
        line = f"# {name} =" if value is None else f"{name} = {_value(value)}"
        if name != "problem":
            lines.append(f"\n{_comment(text)}\n{line}\n")
    return "".join(lines)


def dump(config: Config) -> str:
    """The complete file, every field with a comment; `parse` gives the configuration back."""
    section = f"[problem]\nkind = {_value(kind_of(config.problem))}\n{_lines(config.problem)}"
    return f"{HEAD}{_lines(config)}\n{_comment(words(Config)['problem'])}\n{section}"


def _fields(part: type, given: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    kinds = get_type_hints(part)
    for name in given:
        if name not in kinds:
            near = get_close_matches(name, kinds, n=1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"allowed: {', '.join(kinds)}"
            if prefix and name in get_type_hints(Config):  # added at the end of the file
                hint = f"{name} goes above the section [problem]"
            raise ConfigError(f"unknown field {prefix}{name}; {hint}")
    return {name: value_of(prefix + name, kinds[name], value) for name, value in given.items()}


def _config(given: dict[str, Any]) -> Config:
    problem = given.pop("problem", None)
    allowed = " or ".join(f'"{kind}"' for kind in PROBLEMS)
    if not isinstance(problem, dict):
        raise ConfigError(f"a section [problem] must be there, with kind = {allowed}")
    kind = problem.pop("kind", None)
    if not isinstance(kind, str) or kind not in PROBLEMS:
        raise ConfigError(f"problem.kind must be {allowed}; given {kind!r}")
    values = _fields(Config, given)
    return Config(PROBLEMS[kind](**_fields(PROBLEMS[kind], problem, "problem.")), **values)


def parse(text: str, where: str) -> Config:
    """The checked configuration that a file holds; `where` names the file in any message.

    >>> parse("eta = 0.01\\n[problem]\\nkind = 'sine'", "my.toml").eta
    0.01
    """
    try:
        given = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not TOML: {' '.join(str(error).split())}") from error
    try:
        return check(_config(given))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def load(name_or_path: str | Path) -> Config:
    """A starting point by its name, or the configuration in a TOML file."""
    if str(name_or_path) in STARTS:
        return STARTS[str(name_or_path)]
    path = Path(name_or_path)
    try:
        return parse(path.read_text(encoding="utf-8-sig"), str(path))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{str(path)!r} is neither a file nor a starting point; those are {', '.join(STARTS)}"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not TOML: not UTF-8 text") from error
