"""All errors that moml raises on purpose: one line that says what must hold, and what was given."""

from numbers import Integral
from typing import Any


class MomlError(ValueError):
    """Base of all errors that a user can correct; exit code 2 on the command line.

    Parameters
    ----------
    message
        One line: what must hold, then what was given.

    >>> import moml
    >>> try:
    ...     moml.load("nowhere")
    ... except moml.MomlError as error:
    ...     print(type(error).__name__, "is a ValueError:", isinstance(error, ValueError))
    ConfigError is a ValueError: True
    """

    exit_code = 2


class ConfigError(MomlError):
    """Invalid configuration."""


class PluginNeeded(ConfigError):
    """A file that names plugins, which no user has asked for."""

    def __init__(self, where: str, plugins: list[str]):
        names = ", ".join(plugins)
        self.reason = f"{where} needs the plugin {names}, and no file's word imports a module"
        self.plugins = plugins
        super().__init__(f"{self.reason}: give --plugin, or in Python plugins={plugins}")


class DataError(MomlError):
    """Data that does not fit what is done with it."""


class CheckpointError(MomlError):
    """A saved state that cannot be trusted."""


class Diverged(MomlError):
    """A run that stopped being finite; `learner` has the model of the stretch before."""

    exit_code = 3

    def __init__(self, message: str, learner: Any = None):
        super().__init__(message)
        self.learner = learner


class FlowerError(MomlError):
    """A federation that did not do what it was asked for."""

    exit_code = 1


class OtherFailed(MomlError):
    """What another process of the run failed by, in its own words."""


class LostProcess(MomlError):
    """One of the processes of a run that no longer answers: the others cannot go on."""

    exit_code = 1


class MomlWarning(UserWarning):
    """What is allowed, and probably not meant."""


class Interrupted(MomlError):
    """A run that was asked to stop by a signal, and has saved what it did."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


LONGEST = 2000  # characters of a message on a terminal


def printable(text: object) -> str:
    r"""Text as a terminal may show it in one line: control characters are escaped.

    Names of columns, classes, ids and files, and what others send, may hold anything.

    >>> printable("a\x1b[31m\n")
    'a\\x1b[31m\\n'
    """
    words = str(text)
    words = words if len(words) <= LONGEST else f"{words[:LONGEST]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)


def one_line(text: object, most: int = 200) -> str:
    """Return a text from elsewhere as one line of at most so many characters, safe to print."""
    return printable(" ".join(str(text).split())[:most])


def reason(error: BaseException) -> str:
    """Return an error in one line: what the system says, or else its text or its type.

    >>> reason(OSError(28, "No space left on device")), reason(ValueError("bad\\n row"))
    ('no space left on device', 'bad row')
    """
    text = one_line(getattr(error, "strerror", None) or error, 300)
    return text.replace("No space", "no space") or type(error).__name__


def check_count(name: str, value: Any, least: int = 1, below: int | None = None) -> int:
    """A whole number from `least` up (and under `below`), or a ConfigError that says so."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least or (below is not None and value >= below):
        range_ = f"from {least}" if below is None else f"from {least} to {below - 1}"
        raise ConfigError(f"{name} must be a whole number {range_}; got {value!r}")
    return int(value)
