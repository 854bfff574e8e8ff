"""Checks of the options of `train_table`."""

from collections.abc import Sequence

from moml.errors import ConfigError, check_count

KINDS = ("summary", "head", "steps")


def check_options(
    *,
    columns: dict[str, str | None],
    counts: dict[str, int | None],
    seed: int,
    kinds: Sequence[str] | None,
) -> None:
    """Raise unless columns with a role differ, counts are counts, and kinds are a list of kinds."""
    for name, count in counts.items():
        if count is not None:
            check_count(name, count)
    check_count("seed", seed, least=0)
    given = [name for name in columns.values() if name]
    if columns["task"] in given[1:] or columns["target"] in given[2:]:
        *most, last = columns
        raise ConfigError(f"{', '.join(most)} and {last} must be different columns; got {given}")
    if kinds is not None and (isinstance(kinds, str) or not kinds or set(kinds) - {*KINDS}):
        raise ConfigError(f"kinds must be a list of some of {', '.join(KINDS)}; got {kinds!r}")


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
