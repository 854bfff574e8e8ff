"""The configuration that a run was started with, and what has changed since."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from moml.atomic import read_plain
from moml.config.config import Config, changed, fields_of
from moml.config.toml import dump, parse
from moml.config.toml import load as read_config
from moml.errors import ConfigError, MomlError
from moml.storage.files import write_text
from moml.storage.folder import check_plain, versions
from moml.types import Record

log = logging.getLogger("moml")
FORMAT = 2  # of run.json; version 0.1 wrote none


def write_record(folder: Path, config: Config, extra: Record) -> None:
    """Write config.toml, for people to read and to edit, and last run.json, which marks a run."""
    about = {"format": FORMAT, "config": dump(config), "versions": versions()}
    record = about | {"seed": config.seed} | extra
    write_text(dump(config), folder / "config.toml")
    write_text(json.dumps(record, indent=1) + "\n", folder / "run.json")


def begin(
    folder: Path, config: Config, extra: Record, ready: Callable[[], None] = lambda: None
) -> None:
    """Make a folder that of a run; `ready` is called before anything is written."""
    if (folder / "run.json").exists():
        raise ConfigError(f"{folder} holds a run already; go on with: moml resume {folder}")
    ready()
    write_record(folder, config, extra)


def record_of(folder: Path) -> tuple[Record, Config]:
    """The record and the configuration that a run was started with."""
    check_plain(folder)
    try:
        record = json.loads(read_plain(folder / "run.json"))
        if record.get("format") != FORMAT:
            old = "an earlier" if "format" not in record else "another"
            raise ConfigError(f"{folder} was written by {old} version of moml, which is not read")
        return record, parse(record["config"], str(folder / "run.json"))
    except FileNotFoundError as error:
        raise ConfigError(f"{folder} holds no run: there is no run.json in it") from error
    except MomlError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"cannot read {folder / 'run.json'}: {error}") from error


def unchanged(folder: Path, allow: Sequence[str] = ()) -> tuple[Record, Config, Callable[[], None]]:
    """A run's record and configuration; a change in config.toml must be allowed by its name.

    The function records the change; call it when the run can continue with it.
    """
    record, old = record_of(folder)
    path = folder / "config.toml"
    new = read_config(path)
    fields = changed(old, new)
    before, after = fields_of(old), fields_of(new)
    for name in allow:
        if name not in before | after:
            raise ConfigError(f"--allow-change {name}: there is no such field")
    for name in fields:
        if name not in allow:
            raise ConfigError(
                f"{name} was {before.get(name)} when this run began and is {after.get(name)} in "
                f"{path}: put it back, or go on with --allow-change {name}"
            )
    for name, was in record["versions"].items():
        if (now := versions().get(name)) != was:
            log.warning("%s is %s, it was %s: the last bits may differ", name, now, was)

    def note() -> None:
        if fields:
            kept = {
                key: record[key]
                for key in record
                if key not in ("format", "config", "versions", "seed")
            }
            write_record(folder, new, kept | {"changed": [*record.get("changed", []), fields]})

    return record, new, note


def warn_of_forgotten(record: Record) -> None:
    """Warn that tasks whose memory was removed are still in the data."""
    if numbers := record.get("forgotten"):
        which = ", ".join(map(str, numbers))
        log.warning(
            "forgotten, but still in the data: task %s; further steps learn it again", which
        )
