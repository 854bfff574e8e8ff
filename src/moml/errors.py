"""Everything moml raises on purpose. A message is one line: what was given, what is allowed."""

from typing import Any


class MomlError(Exception):
    """Base of all errors that are somebody's to mend; on the command line exit code 2."""

    exit_code = 2


class ConfigError(MomlError):
    """A setting that cannot be."""


class DataError(MomlError):
    """Data that does not fit what is done with it."""


class CheckpointError(MomlError):
    """A saved state that cannot be trusted."""


class Diverged(MomlError):
    """A run whose loss or parameters became non-finite; `learner` holds the last finite state."""

    exit_code = 3

    def __init__(self, message: str, learner: Any = None):
        super().__init__(message)
        self.learner = learner
