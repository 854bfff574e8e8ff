"""A user's function by its name, `module:function`."""

import importlib

from moml.config.plugins import find_here
from moml.errors import ConfigError
from moml.models.user import Build


def load_build(name: str) -> Build:
    """The function of a module that can be imported, or lies in the working folder."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigError(f"the model must be MODULE:FUNCTION, as nets:build; got {name!r}")
    find_here()
    try:
        found = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise ConfigError(f"{name}: {error}") from error
    except AttributeError as error:
        raise ConfigError(f"{name}: the module {module} has no {function}") from error
    if not callable(found):
        raise ConfigError(f"{name} is no function")
    return found
