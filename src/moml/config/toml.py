"""A configuration as a TOML file: read, written with help for every field, found by name."""

import ast
import inspect
import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from textwrap import dedent, fill
from typing import Any

from moml.algorithms.signature import Keyword, unknown
from moml.config.config import Config, check, kind_of, options_of
from moml.config.plugins import check_imported
from moml.config.problems import PROBLEMS, Problem
from moml.config.starts import STARTS
from moml.config.values import value_of, values_of
from moml.data.table.files import ENDINGS
from moml.errors import ConfigError, PluginNeeded
from moml.kept import kept
from moml.methods import METHODS, factory_of

HEAD = """\
# A run of moml: moml train THIS_FILE --out RUN
# A field that is left out, like those behind a #, has its default.
"""


@kept
def words(part: type) -> dict[str, str]:
    """The text under each field of a dataclass, in one line; "" where there is none.

    >>> words(Config)["seed"]
    'Of the first network and of all that is drawn; from 0.'
    """
    texts = {f.name: "" for f in fields(part)}
    for one in filter(is_dataclass, reversed(part.__mro__)):
        try:
            (definition,) = ast.parse(dedent(inspect.getsource(one))).body
        except (OSError, TypeError, SyntaxError):  # its source is not to be had
            continue
        for statement, below in pairwise(definition.body):  # type: ignore[attr-defined]
            match statement, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    texts |= {name: " ".join(text.split())} if name in texts else {}
    return texts


def _value(value: object) -> str:
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


def help_of(keyword: Keyword) -> str:
    """The help of a method's option: its text, what it may be, its default.

    >>> help_of(options_of("moml-v1")["beta"])
    'Weight of the newest point in a memory; in (0, 1]. By default 0.3.'
    """
    text, allowed, default = keyword.help, keyword.allowed, keyword.default
    if allowed.kind in (int, float):
        head, _, rest = text.partition(". ")
        text = f"{head.removesuffix('.')}; {allowed.text}." + (f" {rest}" if rest else "")
    return text if default is None else f"{text} By default {_value(default)}."


def _lines(texts: Mapping[str, str], values: Mapping[str, object]) -> str:
    lines = []
    for name, text in texts.items():
        value = values.get(name)
        line = f"# {name} =" if value is None else f"{name} = {_value(value)}"
        lines.append(f"\n{_comment(text)}\n{line}\n" if text else f"\n{line}\n")
    return "".join(lines)


def texts_of(config: Config) -> dict[str, str]:
    """The help of every field but the problem's, and of every option of the method."""
    run = {n: text for n, text in words(Config).items() if n not in ("problem", "options")}
    return run | {name: help_of(keyword) for name, keyword in options_of(config.method).items()}


def dump(config: Config) -> str:
    """The complete file, every field with a comment; `parse` gives the configuration back."""
    problem = _lines(words(type(config.problem)), vars(config.problem))
    section = f"[problem]\nkind = {_value(kind_of(config.problem))}\n{problem}"
    in_rounds: dict[str, object] = {} if config.rounds is None else {"iterations": None}
    own = _lines(texts_of(config), config.flat() | in_rounds)
    return f"{HEAD}{own}\n{_comment(words(Config)['problem'])}\n{section}"


def _unknown(name: str, known: Iterable[str], prefix: str = "") -> ConfigError:
    near = get_close_matches(name, list(known), n=1)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"allowed: {', '.join(known)}"
    return ConfigError(f"unknown field {prefix}{name}; {hint}")


def _problem(given: dict[str, Any], own: Collection[str]) -> Problem:
    chosen = PROBLEMS.find(given.pop("kind", None))
    known = [f.name for f in fields(chosen)]  # type: ignore[arg-type]
    for name in given:
        if name not in known and name in own:  # added at the end of the file
            raise ConfigError(f"unknown field problem.{name}; {name} goes above [problem]")
        if name not in known:
            raise _unknown(name, known, "problem.")
    return chosen(**values_of(chosen, given, "problem."))


def _config(given: dict[str, Any]) -> Config:
    problem = given.pop("problem", None)
    if not isinstance(problem, dict):
        kinds = ", ".join(PROBLEMS.names())
        raise ConfigError(f"a section [problem] must be there, with kind one of {kinds}")
    if "rounds" in given and "iterations" in given:
        raise ConfigError("rounds or iterations must be given, not both")
    run = [f.name for f in fields(Config) if f.name not in ("problem", "options")]
    method = value_of("method", str, given.get("method", Config.method))
    factory_of(method)  # or a ConfigError
    own = [*run, *options_of(method)]
    made = _problem(problem, own)
    for name in given:
        if name not in own and any(name in options_of(other) for other in METHODS):
            raise unknown(method, name, options_of(method))
        if name not in own:
            raise _unknown(name, own)
    values = values_of(Config, {name: given[name] for name in given if name in run})
    return Config(made, **given | values)


def parse(text: str, where: str) -> Config:
    """The checked configuration that a file holds; `where` names the file in any message.

    >>> parse("eta = 0.01\\n[problem]\\nkind = 'sine'", "my.toml").options
    {'eta': 0.01}
    """
    try:
        given = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not TOML: {' '.join(str(error).split())}") from error
    try:
        check_imported(value_of("plugin", tuple[str, ...], given.get("plugin", ())), where)
        return check(_config(given))
    except PluginNeeded:
        raise
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def load(name_or_path: str | Path) -> Config:
    """A starting point by its name, or the configuration in a TOML file."""
    if str(name_or_path) in STARTS:
        return STARTS[str(name_or_path)]
    path = Path(name_or_path)
    try:
        if path.name.lower().endswith(sum(ENDINGS.values(), ())) and path.is_file():
            raise ConfigError(f"{path} is a table: give it as --data, with --task and --target")
        return parse(path.read_text(encoding="utf-8-sig"), str(path))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{str(path)!r} is neither a file nor a starting point; those are {', '.join(STARTS)}"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not TOML: not UTF-8 text") from error
