"""One run on a SuperLink, from its start to how it ended."""

import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

from moml.config.config import fields_of
from moml.config.plugins import plugin_words
from moml.errors import ConfigError, Diverged, FlowerError, Interrupted, PluginNeeded, one_line
from moml.flower.app.settings import DEFAULTS, Settings, read
from moml.flower.local.deploy import LINK, deployed, flwr, online
from moml.flower.local.folder import NAME, Places, toml
from moml.runs.session import stop_signals
from moml.storage.files import writable_folder, write_text
from moml.storage.metrics import read as read_rows
from moml.storage.sinks import About, log_words, open_sinks
from moml.types import Record

SETTINGS = "settings.toml"  # of a run, in its folder: what Flower is given
LOGGED = ("loss", "before", "after", "drawn", "answered", "down", "up", "seconds", "epsilon")
SOON, LATER = 2.0, 10.0  # seconds to the next question to the SuperLink: each is a process


def check_nodes(places: Places) -> None:
    """Raise FlowerError where no SuperLink answers or no node is online."""
    try:
        nodes = online(places)
    except FlowerError as error:
        where = f"no SuperLink to be asked, see {places.connections}"
        hint = f"moml flower up {quote(str(places.root))} starts one on this machine"
        raise FlowerError(f"{where}; {hint} ({error})") from error
    if not nodes:
        raise FlowerError(f"no node is online at the SuperLink of {places.connections}")


def check_plugins(places: Places, settings: Settings) -> None:
    """Raise ConfigError where the nodes that `up` has started do not import the run's plugins."""
    now = deployed(places)
    known = set(settings.config.plugin if now is None else now.plugin)
    if missing := [name for name in settings.config.plugin if name not in known]:
        here, more = quote(str(places.root)), plugin_words(settings.config.plugin)
        raise ConfigError(
            f"the nodes must import {', '.join(missing)} too: moml flower down {here} && "
            f"moml flower up {here}{more}"
        )


def new(places: Places, given: Record) -> tuple[Path, Settings]:
    """Create the folder of a run: the app's settings, the experiment, and what is `given`."""
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder, file = places.runs / name, places.root / "pyproject.toml"
    text = _text(file)
    try:
        values = tomllib.loads(text)["tool"]["flwr"]["app"]["config"]
    except (ValueError, LookupError) as error:
        raise ConfigError(f"cannot read [tool.flwr.app.config] of {file}: {error}") from error
    own = {"config": _text(places.config), "experiment": name, "out": str(folder)}
    return _save(places, folder, values | _nodes(places) | own | given, places.config)


def last(places: Places, given: Record) -> tuple[Path, Settings]:
    """Return the newest run, to go on with; it may be given another number of rounds."""
    found = sorted(places.runs.glob(f"*/{SETTINGS}"))
    if not found:
        raise ConfigError(f"{places.root} has no run to go on with")
    folder, values = found[-1].parent, tomllib.loads(_text(found[-1]))
    if given.get("method", values["method"]) != values["method"]:
        raise ConfigError(f"{folder} was begun with another method; a new run may have this one")
    rows, values = rounds(folder), values | _nodes(places) | given
    if rows and rows[-1]["round"] >= read(values).rounds:
        raise ConfigError(f"{folder} is finished; with --rounds above {len(rows)} it goes on")
    return _save(places, folder, values, found[-1])


def _nodes(places: Places) -> Record:
    """A run waits for all the nodes that `up` has started."""
    now = deployed(places)
    running = [] if now is None else [name for name in now.alive if name != LINK]
    return {"min-nodes": len(running)} if running else {}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error


def _save(places: Places, folder: Path, values: Record, source: Path) -> tuple[Path, Settings]:
    try:
        settings = read(values)
    except PluginNeeded:
        raise
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    check_plugins(places, settings)
    text = toml({key: values[key] for key in DEFAULTS if key in values})
    write_text(text, writable_folder(folder) / SETTINGS)
    return folder, settings


def rounds(folder: Path) -> list[Record]:
    """Return the rows of all finished rounds."""
    file = folder / "rounds.jsonl"
    return read_rows(file) if file.exists() else []


def run(
    places: Places,
    folder: Path,
    settings: Settings,
    show: Callable[[Record], None],
    log: Sequence[str] = (),
) -> None:
    """Start a run and show its rounds; returns when it is complete, raises where it is not.

    Ctrl-C and SIGTERM stop it on the SuperLink too. The services `log` get the rounds as well.
    """
    shown, about = len(rounds(folder)), About(fields_of(settings.config))
    with open_sinks(log, folder, about, shown) as write, stop_signals() as asked:

        def show_new() -> bool:
            """Show the new rounds; whether the last one is among them."""
            nonlocal shown
            rows = rounds(folder)[shown:]
            shown += len(rows)
            for row in rows:
                show(row)
                write({"step": row["round"]} | {name: row[name] for name in LOGGED})
            return any(row["round"] == row["rounds"] for row in rows)

        words = (str(places.root), NAME, "--run-config", str(folder / SETTINGS))
        number = flwr(places, "run", *words)["run-id"]
        status, why, ask, wait = "", "", time.monotonic() + SOON, LATER
        while not status.startswith("finished"):
            time.sleep(0.2)
            if show_new():
                ask, wait = 0.0, SOON
            if halt := asked():
                flwr(places, "stop", number, NAME)
                show_new()
                raise Interrupted(f"stopped; {_hint(places, folder, log)}", 128 + halt)
            now = deployed(places)
            if time.monotonic() > ask or (now is not None and LINK in now.missing):
                status, why = _status(places, folder, number, log)
                ask = time.monotonic() + wait
        show_new()
        if status != "finished:completed":
            kind = Diverged if " diverged at round " in why else FlowerError
            end = f"the run ended as {status}: {why or 'no reason given'}"
            raise kind(f"{end}; {_hint(places, folder, log)}")


def _status(places: Places, folder: Path, number: str, log: Sequence[str]) -> tuple[str, str]:
    try:
        (found,) = flwr(places, "list", NAME, "--run-id", number)["runs"]
    except FlowerError as error:
        reason = f"the SuperLink does not answer any more ({error})"
        raise FlowerError(f"{reason}; {_hint(places, folder, log)}") from error
    return found["status"], one_line(found["status-details"], 1000)


def _hint(places: Places, folder: Path, log: Sequence[str]) -> str:
    """How far a run is, and how to go on with it."""
    here, now, done = quote(str(places.root)), deployed(places), len(rounds(folder))
    more = plugin_words([] if now is None else now.plugin)
    first = f"moml flower up {here}{more} && " if now is not None and now.missing else ""
    count = f"{done} round{'s' * (done != 1)} done"
    return f"{count}; go on with: {first}moml flower run {here} --resume{more}{log_words(log)}"
