"""The modules of users that register problems, methods and models.

A module is imported because a user names it, in a command or in Python, never because a file does.
"""

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterable

from moml.errors import ConfigError, MomlError, PluginNeeded

MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def find_here() -> None:
    """Let modules of the working folder be imported."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def import_plugins(modules: Iterable[str]) -> None:
    """Import modules that register something, also from the working folder."""
    if isinstance(modules, str):
        raise ConfigError(f"plugins must be a list of modules; got {modules!r}")
    for module in modules:
        _check_name("plugin", module)
        find_here()
        try:
            importlib.import_module(module)
        except MomlError as error:
            raise ConfigError(f"plugin {module}: {error}") from error
        except Exception as error:  # whatever a user's module raises
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = "" if last.filename.startswith("<") else f" ({last.filename}, {last.lineno})"
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(f"plugin {module}: {reason}{place}") from error


def plugin_words(modules: Iterable[str]) -> str:
    """The end of a command that names these plugins.

    >>> plugin_words(("mine", "ours"))
    ' --plugin mine --plugin ours'
    """
    return "".join(f" --plugin {module}" for module in modules)


def check_imported(modules: Iterable[str], where: str) -> None:
    """Raise PluginNeeded where a module that a file names is not imported."""
    for module in modules:
        _check_name("plugin", module)
    if missing := [module for module in modules if module not in sys.modules]:
        raise PluginNeeded(where, missing)


def _check_name(name: str, module: object) -> None:
    if not isinstance(module, str) or not MODULE.fullmatch(module):
        raise ConfigError(f"{name} must be a module, such as my_package.mine; got {module!r}")
