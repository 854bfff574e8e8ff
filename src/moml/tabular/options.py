"""Checks of the options of `train_table`."""

from collections.abc import Mapping, Sequence
from typing import Any

from moml.errors import ConfigError, check_count

KINDS = ("summary", "head", "steps")


def check_options(
    *,
    columns: Mapping[str, Any],
    lists: Mapping[str, Any],
    counts: Mapping[str, int | None],
    seed: int,
) -> None:
    """Raise unless columns with a role are different names, lists are lists, counts are counts.

    >>> check_options(columns={}, lists={"exclude": "age"}, counts={}, seed=0)
    Traceback (most recent call last):
        ...
    moml.errors.ConfigError: exclude must be a list of names; got 'age'
    """
    for name, count in counts.items():
        if count is not None:
            check_count(name, count)
    check_count("seed", seed, least=0)
    for role, name in columns.items():
        if name is not None and not isinstance(name, str):
            raise ConfigError(f"{role} must be the name of a column, a text; got {name!r}")
    given = [name for name in columns.values() if name]
    roles = [columns.get("task"), columns.get("target")]
    if any(given.count(name) > 1 for name in roles):
        *most, last = columns
        raise ConfigError(f"{', '.join(most)} and {last} must be different columns; got {given}")
    for name, some in lists.items():
        if isinstance(some, str):
            raise ConfigError(f"{name} must be a list of names; got {some!r}")
    kinds = lists.get("kinds")
    if kinds is not None and (not kinds or set(kinds) - {*KINDS}):
        raise ConfigError(f"kinds must be some of {', '.join(KINDS)}; got {list(kinds)}")


def check_not_held_out(
    hold_out: float | None, refit: bool, tasks: int, networks: Sequence[str]
) -> None:
    """Refuse options of a held-out part for a cross-fitted table, one with fewer than `tasks`."""
    if hold_out is None and refit:
        return
    given = "refit=False" if hold_out is None else f"hold_out={hold_out}"
    raise ConfigError(
        f"a table with fewer than {tasks:,} tasks is cross-fitted: all are scored and learned "
        f"from; to hold some out give kinds, such as --kinds {' '.join(networks)}; got {given}"
    )
