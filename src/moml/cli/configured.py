"""Commands that take a configuration: `moml train CONFIG --out RUN --eta 0.01 --problem.n 50`."""

from collections.abc import Callable, Sequence
from dataclasses import field, fields, make_dataclass
from inspect import cleandoc
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import tyro

from moml.algorithms.signature import Allowed, unknown
from moml.cli.plugins import options_in
from moml.config.config import Config, check, kind_of, options_of, with_method, with_values
from moml.config.problems import PROBLEMS
from moml.config.starts import STARTS
from moml.config.toml import load, texts_of, words
from moml.errors import ConfigError
from moml.methods import METHODS

Own = TypeVar("Own")
OTHERS = (("iterations", "rounds"), ("k", "batch_size"), ("local_steps", "local_epochs"))


def parse(
    arguments: Sequence[str],
    prog: str,
    own: type[Own],
    ready: Callable[[Own], None] = lambda own: None,
) -> tuple[Config, Own]:
    """The checked configuration, and the options of the command's own dataclass.

    `ready` is called before JAX is asked for anything.

    The first argument is CONFIG, a starting point or a TOML file; it gives the defaults of all
    options after it. `prog` is the command as a user types it, `own`'s docstring what it does.
    """
    first = arguments[0] if arguments else ""
    about = cleandoc(own.__doc__ or "")
    if first and not first.startswith("-"):
        base, prog, rest = load(first), f"{prog} {first}", arguments[1:]
    elif {"-h", "--help"} & set(arguments):
        base, prog = _with_method(next(iter(STARTS.values())), arguments), f"{prog} CONFIG"
        rest = ["--help"]
        about = f"{about}\n\n{_about_config(base)}"
    else:
        raise ConfigError(
            f"{prog} CONFIG: give a starting point ({', '.join(STARTS)}) or a TOML file first; "
            f"got {first or 'nothing'}"
        )
    base = _without_others(_with_method(base, rest), rest)
    flat = tyro.conf.arg(name="")  # --eta, not --config.eta
    both: Any = make_dataclass(
        "Both", [("own", Annotated[own, flat]), ("config", Annotated[_fields_of(base), flat])]
    )
    given = tyro.cli(
        both, args=rest, prog=prog, description=about, config=(tyro.conf.AvoidSubcommands,)
    )
    ready(given.own)
    plugin = tuple(dict.fromkeys([*base.plugin, *getattr(given.own, "plugin", ())]))
    return check(Config(**vars(given.config), plugin=plugin)), given.own


def _with_method(base: Config, arguments: Sequence[str]) -> Config:
    """The configuration with the method that the arguments name, and its options among them.

    An option that the new method lacks is dropped from the defaults, and refused as an argument.
    """
    names = tyro_names(arguments)
    if "method" in names:
        base = with_method(base, names["method"])
    known = options_of(base.method)
    for name in names:
        others = (options_of(other) for other in METHODS)
        if name not in known and any(name in options for options in others):
            raise unknown(base.method, name, known)
    return base


def _without_others(base: Config, arguments: Sequence[str]) -> Config:
    """The configuration without what the arguments say in another way, such as by epochs."""
    names = tyro_names(arguments)
    if names.get("rounds", "None") != "None" and "iterations" in names:
        raise ConfigError("rounds or iterations must be given, not both")
    for pair in OTHERS:
        for said, other in (pair, pair[::-1]):
            if said in names and other not in names and other in ("rounds", *base.options):
                base = with_values(base, **{other: None})
    return base


def tyro_names(arguments: Sequence[str]) -> dict[str, str]:
    """The options among arguments, by their names in Python, with the word after each.

    >>> tyro_names(["--local-steps", "3", "--method=maml"])
    {'local_steps': '3', 'method': 'maml'}
    """
    python = lambda option: option.removeprefix("--").replace("-", "_")
    return {python(option): value for option, value in options_in(arguments)}


def _fields_of(base: Config) -> type:
    """A dataclass for tyro: the run's fields and the options of its method."""
    kinds = get_type_hints(Config)
    kinds |= {n: _kind(word.allowed) for n, word in options_of(base.method).items()}
    values = {"problem": base.problem} | base.flat()
    texts = {"problem": words(Config)["problem"]} | texts_of(base)
    del texts["plugin"]  # an option of the command
    fields_ = [
        (n, Annotated[kinds[n], tyro.conf.arg(help=text)], field(default=values.get(n)))
        for n, text in texts.items()
    ]
    return make_dataclass("Config", fields_, frozen=True)


def _kind(allowed: Allowed) -> Any:
    """The type of an option's values, for tyro."""
    words = Literal[allowed.words] if allowed.words else None
    return allowed.kind | words | None if words else allowed.kind | None  # type: ignore[operator]


def _about_config(base: Config) -> str:
    """CONFIG in words, and the fields of the problems that tyro does not show beside `base`."""
    shown = kind_of(base.problem)
    lines = [
        f"CONFIG is a starting point ({', '.join(STARTS)}) or a TOML file: the defaults of the",
        f"options. The options below are those of the problem {shown} and the method",
        f"{base.method}; with --method NAME those of that method are shown.",
    ]
    for kind, problem in PROBLEMS.listed().items():
        if kind != shown:
            lines.append(f"\nThose of {kind} are:")
            texts = words(problem)
            lines += [
                f"  --problem.{f.name}: {texts[f.name]} (default: {f.default})"
                for f in fields(problem)  # type: ignore[arg-type]
            ]
    return "\n".join(lines)
