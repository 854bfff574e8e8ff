"""What can be learned: a frozen dataclass each. The words under a field are its help.

`PROBLEMS` maps the names of configurations to them; `moml.plugins.register_problem` adds a user's.
"""

from dataclasses import MISSING, fields, is_dataclass
from typing import get_type_hints

from moml.config.problems.clients import Clients
from moml.config.problems.episodes import Episodes
from moml.config.problems.generated import Sine, Synthetic
from moml.config.problems.problem import Built, Own, Problem, classifier, regressor
from moml.config.problems.table import Table
from moml.config.values import typed
from moml.errors import ConfigError
from moml.registry import Registry

__all__ = [
    "PROBLEMS", "Built", "Clients", "Episodes", "Own", "Problem", "Sine", "Synthetic", "Table",
    "classifier", "regressor",
]  # fmt: skip
PLAIN = (int, float, bool, str, tuple[int, ...])
KINDS = {kind for plain in PLAIN for kind in (plain, plain | None)}


def check_class(name: str, kind: object) -> None:
    """Refuse a class whose fields cannot be those of a configuration."""
    if not (isinstance(kind, type) and issubclass(kind, Problem) and is_dataclass(kind)):
        raise ConfigError(
            f"the problem {name!r} must be a dataclass, derived from moml.problems.Problem; "
            f"got {kind!r}"
        )
    hints = get_type_hints(kind)
    for field in fields(kind):
        lacks = field.default is MISSING or isinstance(field.default, property)  # as of Problem.n
        if hints[field.name] not in KINDS or lacks or field.name == "kind":
            raise ConfigError(
                f"{kind.__name__}.{field.name} must have a default, another name than kind, and "
                "be an int, float, bool, str, tuple[int, ...], or one of them or None"
            )
    typed(kind(), "problem.")


PROBLEMS: Registry[type[Problem]] = Registry(
    "problem.kind",
    "moml.problems",
    {
        "sine": Sine,
        "synthetic": Synthetic,
        "episodes": Episodes,
        "clients": Clients,
        "table": Table,
    },
    check_class,
)
