"""`--plugin MODULE`: a user's own problems, methods and models, in any command that knows runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from shlex import join

import tyro

from moml.errors import ConfigError, PluginNeeded


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The option of commands that take them."""

    plugin: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Module that registers problems, methods or models; it is imported, from the working folder
    too. Give the option once for each."""


def options_in(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options among arguments, each with its value: what follows = or is the next word."""
    for word, after in zip_longest(arguments, arguments[1:], fillvalue=""):
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            yield option, value if equals else after


def plugins_in(arguments: Sequence[str]) -> list[str]:
    """The modules that arguments name.

    >>> plugins_in(["run", "--plugin", "mine", "--k", "2", "--plugin=ours.more"])
    ['mine', 'ours.more']
    """
    return [value for option, value in options_in(arguments) if option == "--plugin"]


def with_command(error: PluginNeeded, arguments: Sequence[str]) -> ConfigError:
    """The error for a file that names plugins, with the whole command to repeat."""
    more = [word for name in error.plugins for word in ("--plugin", name)]
    return ConfigError(f"{error.reason}; repeat with: {join(['moml', *arguments, *more])}")
