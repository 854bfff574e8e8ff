"""Commands that take a configuration: `moml train CONFIG --out RUN --eta 0.01 --problem.n 50`."""

from collections.abc import Callable, Sequence
from dataclasses import field, fields, make_dataclass
from inspect import cleandoc
from typing import Annotated, Any, TypeVar

import tyro

from moml.config.config import PROBLEMS, Config, check, kind_of
from moml.config.starts import STARTS
from moml.config.toml import load, words
from moml.errors import ConfigError

Own = TypeVar("Own")


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
        base, prog, rest = next(iter(STARTS.values())), f"{prog} CONFIG", ["--help"]
        about = f"{about}\n\n{_about_config(base)}"
    else:
        raise ConfigError(
            f"{prog} CONFIG: give a starting point ({', '.join(STARTS)}) or a TOML file first; "
            f"given {first or 'nothing'}"
        )
    flat = tyro.conf.arg(name="")  # --eta, not --config.eta
    both: Any = make_dataclass(
        "Both",
        [
            ("own", Annotated[own, flat]),
            ("config", Annotated[Config, flat], field(default=base)),
        ],
    )
    given = tyro.cli(
        both, args=rest, prog=prog, description=about, config=(tyro.conf.AvoidSubcommands,)
    )
    ready(given.own)
    return check(given.config), given.own


def _about_config(base: Config) -> str:
    """CONFIG in words, and the fields of the problems that tyro does not show beside `base`."""
    shown = kind_of(base.problem)
    lines = [
        f"CONFIG is a starting point ({', '.join(STARTS)}) or a TOML file: the defaults of the",
        f"options. The problem options below are those of {shown}.",
    ]
    for kind, problem in PROBLEMS.items():
        if kind != shown:
            lines.append(f"\nThose of {kind} are:")
            texts = words(problem)
            lines += [
                f"  --problem.{f.name}: {texts[f.name]} (default: {f.default})"
                for f in fields(problem)
            ]
    return "\n".join(lines)
