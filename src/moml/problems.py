"""Problems: frozen dataclasses of options that build what is trained, and their names.

A problem of your own derives from `Problem` and builds a `Built`, by `classifier` or `regressor`
or field by field. `moml.plugins.register_problem` gives it a name. See the guide, "A problem of
your own".
"""

from moml.config.models import network
from moml.config.problems import (
    PROBLEMS,
    Built,
    Clients,
    Episodes,
    Own,
    Problem,
    Sine,
    Synthetic,
    Table,
    classifier,
    regressor,
)

__all__ = [
    "PROBLEMS", "Built", "Clients", "Episodes", "Own", "Problem", "Sine", "Synthetic", "Table",
    "classifier", "network", "regressor",
]  # fmt: skip
