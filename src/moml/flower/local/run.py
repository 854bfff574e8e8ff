"""One run on a SuperLink, from its start to the truth about how it ended."""

import json
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

from moml.errors import ConfigError, Diverged, FlowerError, Interrupted
from moml.flower.app.settings import DEFAULTS, Settings, read
from moml.flower.local.control import flwr, online
from moml.flower.local.deploy import LINK, deployed
from moml.flower.local.folder import NAME, Places, toml
from moml.runs.session import stop_signals
from moml.storage.files import write_text

Row = dict[str, Any]
SETTINGS = "settings.toml"  # of a run, in its folder: what Flower is given
SOON, LATER = 2.0, 10.0  # seconds to the next question to the SuperLink: each is a process


def check_nodes(places: Places) -> None:
    """Refuse to begin where nobody would answer."""
    try:
        there = online(places)
    except FlowerError as error:
        where = f"no SuperLink to be asked, see {places.connections}"
        hint = f"moml flower up {quote(str(places.root))} starts one on this machine"
        raise FlowerError(f"{where}; {hint} ({error})") from error
    if not there:
        raise FlowerError(f"no node is online at the SuperLink of {places.connections}")


def new(places: Places, given: Row) -> tuple[Path, Settings]:
    """The folder of a new run: the app's settings, the experiment, and what is `given`."""
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = places.runs / name
    own = {"config": _text(places.config), "experiment": name, "out": str(folder)}
    told = _app(places) | _here(places) | own | given
    settings = _read(told, places.config)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    _write(told, folder)
    return folder, settings


def last(places: Places, given: Row) -> tuple[Path, Settings]:
    """The run that was begun last, to go on with; it may have another number of rounds."""
    found = sorted(places.runs.glob(f"*/{SETTINGS}"))
    if not found:
        raise ConfigError(f"{places.root} has no run to go on with")
    folder = found[-1].parent
    told = tomllib.loads(_text(found[-1]))
    if given.get("method", told["method"]) != told["method"]:
        raise ConfigError(f"{folder} was begun with another method; a new run may have this one")
    told |= _here(places) | given
    settings = _read(told, found[-1])
    rows = rounds(folder)
    if rows and rows[-1]["round"] >= settings.rounds:
        raise ConfigError(f"{folder} is finished; with --rounds above {len(rows)} it goes on")
    _write(told, folder)
    return folder, settings


def rounds(folder: Path) -> list[Row]:
    """What is known of each finished round."""
    try:
        text = (folder / "rounds.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def run(places: Places, folder: Path, show: Callable[[Row], None]) -> None:
    """Start a run and show its rounds; returns when it is complete, raises where it is not.

    Ctrl-C and SIGTERM stop it on the SuperLink too.
    """
    shown = len(rounds(folder))

    def tell() -> bool:
        """Show what is new; whether the last round is among it."""
        nonlocal shown
        news = rounds(folder)[shown:]
        for row in news:
            show(row)
        shown += len(news)
        return any(row["round"] == row["rounds"] for row in news)

    with stop_signals() as asked:
        words = (str(places.root), NAME, "--run-config", str(folder / SETTINGS))
        number = flwr(places, "run", *words)["run-id"]
        status, why, ask, wait = "", "", time.monotonic() + SOON, LATER
        while not status.startswith("finished"):
            time.sleep(0.2)
            if tell():
                ask, wait = 0.0, SOON
            if halt := asked():
                flwr(places, "stop", number, NAME)
                tell()
                raise Interrupted(f"stopped; {_go_on(places, folder)}", 128 + halt)
            if time.monotonic() > ask or not _link_runs(places):
                status, why = _status(places, folder, number)
                ask = time.monotonic() + wait
        tell()
    if status != "finished:completed":
        kind = Diverged if " diverged at round " in why else FlowerError
        told = f"the run ended as {status}: {why or 'no reason given'}"
        raise kind(f"{told}; {_go_on(places, folder)}")


def _link_runs(places: Places) -> bool:
    """False where it is one that `up` has started, and that has ended."""
    now = deployed(places)
    return now is None or LINK in now.alive


def _status(places: Places, folder: Path, number: str) -> tuple[str, str]:
    try:
        (found,) = flwr(places, "list", NAME, "--run-id", number)["runs"]
    except FlowerError as error:
        told = f"the SuperLink does not answer any more ({error})"
        raise FlowerError(f"{told}; {_go_on(places, folder)}") from error
    return found["status"], " ".join(found["status-details"].split())


def _go_on(places: Places, folder: Path) -> str:
    here = quote(str(places.root))
    now = deployed(places)
    first = f"moml flower up {here} && " if now is not None and now.missing else ""
    done = len(rounds(folder))
    count = f"{done} round{'s' * (done != 1)} done"
    return f"{count}; go on with: {first}moml flower run {here} --resume"


def _here(places: Places) -> Row:
    """A run waits for all the nodes that `up` has started."""
    now = deployed(places)
    running = [] if now is None else [name for name in now.alive if name != LINK]
    return {"min-nodes": len(running)} if running else {}


def _app(places: Places) -> Row:
    file = places.root / "pyproject.toml"
    try:
        return tomllib.loads(_text(file))["tool"]["flwr"]["app"]["config"]
    except (ValueError, LookupError) as error:
        raise ConfigError(f"{file} has no [tool.flwr.app.config] to be read: {error}") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error


def _read(told: Row, where: Path) -> Settings:
    try:
        return read(told)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _write(told: Row, folder: Path) -> None:
    write_text(toml({key: told[key] for key in DEFAULTS if key in told}), folder / SETTINGS)
