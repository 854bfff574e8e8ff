"""A SuperLink and SuperNodes on this machine alone, for trying a federation out: up and down."""

import json
import re
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from moml.errors import ConfigError, FlowerError
from moml.flower.local.certificates import make_certificates, make_key
from moml.flower.local.control import flwr, online
from moml.flower.local.folder import NAME, Places, connect, environment, toml
from moml.flower.local.processes import Process, begin, stop
from moml.storage.files import write_text
from moml.storage.folder import Lock
from moml.training.progress import bar

HERE = "127.0.0.1"
LINK = "superlink"
PATIENCE = 180.0  # seconds for a program to be there


@dataclass(frozen=True)
class Deployment:
    """What `up` has started: one port for the SuperLink, then one for each node."""

    tls: bool
    ports: list[int]
    data: str | None = None
    processes: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """How many nodes it has."""
        return len(self.ports) - 1

    @property
    def address(self) -> str:
        """Of the SuperLink."""
        return f"{HERE}:{self.ports[0]}"

    @property
    def alive(self) -> dict[str, Process]:
        """Its processes that run, by name: superlink, node-0, node-1, ..."""
        started = {name: Process(name, *which) for name, which in self.processes.items()}
        return {name: process for name, process in started.items() if process.alive}

    @property
    def missing(self) -> list[str]:
        """The names of those that do not run."""
        names, running = [LINK, *(f"node-{i}" for i in range(self.nodes))], self.alive
        return [name for name in names if name not in running]


def deployed(places: Places) -> Deployment | None:
    """What `up` has started here, if anything."""
    try:
        return Deployment(**json.loads((places.home / "up.json").read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"cannot read {places.home / 'up.json'}: {error}") from error


def up(
    places: Places, nodes: int | None, tls: bool, data: Path | None = None, *, shown: bool
) -> tuple[Deployment, bool]:
    """Start what does not run yet, and wait until it is there; whether there was anything to start.

    Should one of them fail, those that were started now are stopped again.
    """
    with Lock(places.home):
        now, rows = deployed(places), None if data is None else str(data.absolute())
        if now is None or not now.alive:
            if data is not None and not data.exists():
                raise ConfigError(f"--data {data}: there is no such file or folder")
            now = _fresh(places, nodes or 3, tls, rows)
        elif nodes not in (None, now.nodes) or tls > now.tls or rows not in (None, now.data):
            told = f"{now.nodes} nodes{' and TLS' if now.tls else ''}"
            raise ConfigError(f"{places.root} is up with {told}; `moml flower down` comes first")
        if LINK in now.missing and now.alive:  # its nodes may have lost messages: all begin anew
            stop(now.alive.values())
            now = _fresh(places, now.nodes, now.tls, now.data)
        missing = now.missing
        try:
            if missing:
                _start(places, now, missing, shown)
        except BaseException:
            stop(process for name, process in now.alive.items() if name in missing)
            raise
    return now, bool(missing)


def down(places: Places) -> int:
    """Stop what `up` has started, nodes first; how many there were. What they wrote stays."""
    with Lock(places.home):
        now = deployed(places)
        running = {} if now is None else now.alive
        stop(process for name, process in running.items() if name != LINK)
        stop(process for name, process in running.items() if name == LINK)
        (places.home / "up.json").unlink(missing_ok=True)
    return len(running)


def _fresh(places: Places, nodes: int, tls: bool, data: str | None) -> Deployment:
    """A new SuperLink knows of no runs and no nodes; the nodes' keys and memories stay."""
    for file in places.home.glob("superlink.db*"):
        file.unlink()
    (places.home / "logs").mkdir(exist_ok=True)
    if tls:
        make_certificates(places.keys)
        for key in (places.keys / f"node-{i}" for i in range(nodes)):
            if not key.exists():
                make_key(key)
    certificate = places.keys / "ca.crt" if tls else None
    new = Deployment(tls, _free_ports(nodes + 1), data)
    connect(places, new.address, insecure=not tls, root_certificates=certificate)
    return new


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HERE, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _start(places: Places, now: Deployment, names: list[str], shown: bool) -> None:
    nodes = [name for name in names if name != LINK]
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())  # as Flower tells times
    deadline = time.monotonic() + PATIENCE
    unknown = not (places.home / "superlink.db").exists()
    with bar("starting", len(names), shown=shown) as advance:
        if LINK in names:
            _begin(places, now, LINK)
            while not _answers(now.ports[0]):
                _check(places, now, [LINK], deadline)
                time.sleep(0.1)
            advance(1)
        if now.tls and unknown:
            for i in range(now.nodes):
                flwr(places, "supernode", "register", str(places.keys / f"node-{i}.pub"), NAME)
        for name in nodes:
            _begin(places, now, name)
        came, first = 0, len(names) - len(nodes)
        while came < len(nodes):
            came = sum(time_ >= since for time_ in online(places))
            advance(min(first + came, len(names)))
            _check(places, now, names, deadline)


def _begin(places: Places, now: Deployment, name: str) -> None:
    command = _link_command(places, now) if name == LINK else _node_command(places, now, name)
    process = begin(name, command, _log(places, name), environment(places))
    now.processes[name] = [process.pid, process.started]
    write_text(json.dumps(asdict(now), indent=1) + "\n", places.home / "up.json")


def _link_command(places: Places, now: Deployment) -> list[str]:
    keys = places.keys
    secure = [
        f"--ssl-ca-certfile={keys / 'ca.crt'}",
        f"--ssl-certfile={keys / 'server.crt'}",
        f"--ssl-keyfile={keys / 'server.key'}",
        "--enable-supernode-auth",
    ]
    where = [f"--host={HERE}", f"--port={now.ports[0]}"]
    database = f"--database={places.home / 'superlink.db'}"
    return ["flower-superlink", *where, database, *(secure if now.tls else ["--insecure"])]


def _node_command(places: Places, now: Deployment, name: str) -> list[str]:
    i = int(name.partition("-")[2])
    file, told = places.home / f"{name}.toml", {"partition-id": i, "num-partitions": now.nodes}
    lie = {"state-dir": str(places.home / "state" / name)} | (
        {"data": now.data} if now.data else {}
    )
    write_text(toml(told | lie), file)
    secure = [
        f"--root-certificates={places.keys / 'ca.crt'}",
        f"--auth-supernode-private-key={places.keys / name}",
    ]
    where = [f"--superlink={now.address}", f"--host={HERE}", f"--port={now.ports[i + 1]}"]
    own = [f"--node-config={file}", *(secure if now.tls else ["--insecure"])]
    return ["flower-supernode", *where, *own]


def _log(places: Places, name: str) -> Path:
    return places.home / "logs" / f"{name}.log"


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((HERE, port)) == 0


def _check(places: Places, now: Deployment, names: list[str], deadline: float) -> None:
    """Raise where one of them is gone, or where the time is over."""
    running = now.alive
    for name in (name for name in names if name in now.processes and name not in running):
        raise FlowerError(f"{name} ended as it was started: {tail(_log(places, name))}")
    if time.monotonic() > deadline:
        raise FlowerError(f"not there after {PATIENCE:.0f} s; see {places.home / 'logs'}")


def tail(log: Path, lines: int = 8) -> str:
    """The last lines of a log that say something, in one."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
    said = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return f"{' / '.join(said[-lines:])} ({log})"
