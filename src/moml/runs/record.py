"""The configuration that a run was started with, and what has changed since.

Every checkpoint notes its configuration, and the record has a digest of itself: a record that was
edited, or belongs to other checkpoints, is refused.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from moml.algorithms.signature import AUTO
from moml.atomic import read_plain
from moml.config.config import Config, changed, fields_of, with_values
from moml.config.plugins import plugin_words
from moml.config.toml import dump, parse
from moml.config.toml import load as read_config
from moml.errors import ConfigError, MomlError
from moml.storage.checkpoint import newest_info
from moml.storage.files import write_text
from moml.storage.folder import check_plain, versions
from moml.storage.sinks import log_words
from moml.types import Record

log = logging.getLogger("moml")
FORMAT = 2  # of run.json; version 0.1 wrote none


def write_record(folder: Path, config: Config, extra: Record) -> None:
    """Write config.toml, for people to read and to edit, and last run.json, which marks a run."""
    about = {"format": FORMAT, "config": dump(config), "versions": versions()}
    if config.plugin:
        about["plugin"] = list(config.plugin)
    record = about | {"seed": config.seed} | extra
    write_text(dump(config), folder / "config.toml")
    save_record(folder, record)


def save_record(folder: Path, record: Record) -> None:
    """Write run.json."""
    text = json.dumps(record | {"sha256": _digest(record)}, indent=1)
    write_text(text + "\n", folder / "run.json")


def _digest(record: Record) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def resume_words(folder: Path, plugins: Iterable[str], log: Sequence[str] = ()) -> str:
    """The command that continues a run."""
    return f"moml resume {quote(str(folder))}{log_words(log)}{plugin_words(plugins)}"


def begin(
    folder: Path, config: Config, extra: Record, ready: Callable[[], None] = lambda: None
) -> None:
    """Make a folder that of a run; `ready` is called before anything is written."""
    if (folder / "run.json").exists():
        command = resume_words(folder, config.plugin)
        raise ConfigError(f"{folder} holds a run already; go on with: {command}")
    ready()
    write_record(folder, config, extra)


def record_of(folder: Path) -> tuple[Record, Config]:
    """The record and the configuration that a run was started with."""
    check_plain(folder)
    path = folder / "run.json"
    try:
        record = json.loads(read_plain(path))
        if record.get("format") != FORMAT:
            old = "an earlier" if "format" not in record else "another"
            raise ConfigError(f"{folder} was written by {old} version of moml, which is not read")
        digest, config = record.pop("sha256", None), parse(record["config"], str(path))
        config = with_choice(record, config)
        _check_saved(path, record, config)
        if digest != _digest(record):
            raise ConfigError(f"{path} was changed: its SHA-256 is not the one in it; put it back")
        return record, config
    except FileNotFoundError as error:
        if (folder / "table.json").exists():
            commands = "moml evaluate, predict, adapt, and train --data --from"
            raise ConfigError(f"{folder} is the run of a table; it is for {commands}") from error
        raise ConfigError(f"{folder} holds no run: there is no run.json in it") from error
    except MomlError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def with_choice(record: Record, config: Config) -> Config:
    """The configuration with the beta that the run has chosen, where it has."""
    if "choice" not in record or config.options.get("beta") != AUTO:
        return config
    return with_values(config, beta=record["choice"]["beta"])


def _check_saved(path: Path, record: Record, config: Config) -> None:
    """Refuse a configuration that is not, and never was, that of the newest checkpoints."""
    for part in (path.parent, *sorted(path.parent.glob("part-*"))):
        place, info = newest_info(part / "checkpoints", whole=False) or (part, {})
        saved = parse(info["config"], str(place / "info.json")) if "config" in info else config
        saved = with_choice(record, saved)
        before = (parse(text, str(path)) for text in record.get("earlier", []))
        if any(saved == with_choice(record, each) for each in before):
            continue
        for name in changed(saved, config):
            was, now = (fields_of(each).get(name) for each in (saved, config))
            raise ConfigError(f"{name} is {now} in {path}, but {was} in {place}: put it back")


def unchanged(folder: Path, allow: Sequence[str] = ()) -> tuple[Record, Config, Callable[[], None]]:
    """A run's record and configuration; a change in config.toml must be allowed by its name.

    The function records the change; call it when the run can continue with it.
    """
    record, old = record_of(folder)
    path = folder / "config.toml"
    new = with_choice(record, replace(read_config(path), rounds=None))  # as iterations
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
            own = ("format", "config", "versions", "seed", "plugin")
            kept = {key: record[key] for key in record if key not in own}
            kept["changed"] = [*record.get("changed", []), fields]
            kept["earlier"] = [*record.get("earlier", []), record["config"]]
            write_record(folder, new, kept)

    return record, new, note


def warn_of_forgotten(record: Record) -> None:
    """Warn that tasks whose memory was removed are still in the data."""
    if numbers := record.get("forgotten"):
        which = ", ".join(map(str, numbers))
        log.warning(
            "forgotten, but still in the data: task %s; further steps learn it again", which
        )
