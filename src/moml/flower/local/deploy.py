"""A SuperLink and SuperNodes on this machine alone, for trying a federation out: up and down."""

import json
import os
import re
import secrets
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from psutil import Process, process_iter

from moml.config.plugins import plugin_words
from moml.errors import ConfigError, FlowerError, one_line
from moml.flower.local.certificates import make_certificates, make_key
from moml.flower.local.folder import NAME, Places, connect, environment, toml
from moml.flower.local.processes import find, start, stop
from moml.storage.files import write_text
from moml.storage.folder import Lock
from moml.training.progress import bar
from moml.types import Record

HERE = "127.0.0.1"
LINK = "superlink"
MARK = "MOML_FEDERATION"  # in the environment of all that `up` starts, and of what they start
PATIENCE = 180.0  # seconds for a program to be ready


@dataclass(frozen=True)
class Deployment:
    """What `up` has started: one port for the SuperLink, then one for each node."""

    tls: bool
    ports: list[int]
    data: str | None = None
    plugin: list[str] = field(default_factory=list)
    processes: dict[str, list[int | float]] = field(default_factory=dict)  # pid, start
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def nodes(self) -> int:
        """How many nodes it has."""
        return len(self.ports) - 1

    @property
    def address(self) -> str:
        """Address of the SuperLink."""
        return f"{HERE}:{self.ports[0]}"

    @property
    def alive(self) -> dict[str, Process]:
        """Its processes that run, by name: superlink, node-0, node-1, ..."""
        found = {name: find(int(pid), since) for name, (pid, since) in self.processes.items()}
        return {name: process for name, process in found.items() if process is not None}

    @property
    def started(self) -> set[Process]:
        """All that runs of it, with what its processes started: also of those that were killed."""
        mark = lambda process: (process.info["environ"] or {}).get(MARK)
        marked = {one for one in process_iter(["environ"]) if mark(one) == self.mark}
        return marked | set(self.alive.values())

    @property
    def missing(self) -> list[str]:
        """The names of those that do not run."""
        names, running = [LINK, *(f"node-{i}" for i in range(self.nodes))], self.alive
        return [name for name in names if name not in running]


def deployed(places: Places) -> Deployment | None:
    """Return what `up` has started here, if anything."""
    try:
        return Deployment(**json.loads((places.home / "up.json").read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"cannot read {places.home / 'up.json'}: {error}") from error


def flwr(places: Places, *words: str) -> Record:
    """Return the answer of `flwr WORDS --format json`, asked of this folder's SuperLink.

    It has its own session, as Ctrl-C must not leave half a request behind.
    """
    done = subprocess.run(
        ["flwr", *words, "--format", "json"],
        env=environment(places),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    if not answer.get("success"):
        text = answer.get("error-message") or _last_lines(done.stderr or done.stdout)
        raise FlowerError(f"flwr {words[0]}: {one_line(text, 1000) or 'no answer'}")
    return answer


def online(places: Places) -> list[str]:
    """Return when each node that is online came online, oldest first; an ISO time."""
    nodes = flwr(places, "supernode", "list", NAME)["nodes"]
    return sorted(node["online-at"] for node in nodes if node["status"] == "online")


def up(
    places: Places,
    nodes: int | None,
    tls: bool,
    data: Path | None = None,
    plugin: Sequence[str] = (),
    *,
    shown: bool,
) -> tuple[Deployment, bool]:
    """Start what does not run yet and wait until it is ready; whether anything was to start.

    Should one of them fail, those that were started now are stopped again.
    """
    with Lock(places.home):
        now, path = deployed(places), None if data is None else str(data.absolute())
        if now is None or not now.alive:
            stop([] if now is None else now.started)
            if data is not None and not data.exists():
                raise ConfigError(f"--data {data}: there is no such file or folder")
            now = _prepare(places, nodes or 3, tls, path, plugin)
        elif (
            nodes not in (None, now.nodes)
            or tls > now.tls
            or path not in (None, now.data)
            or not set(plugin) <= set(now.plugin)
        ):
            state = f"{now.nodes} nodes{' and TLS' if now.tls else ''}{plugin_words(now.plugin)}"
            raise ConfigError(f"{places.root} is up with {state}; `moml flower down` comes first")
        elif LINK in now.missing:  # its nodes may have lost messages: all start again
            stop(now.started)
            now = _prepare(places, now.nodes, now.tls, now.data, now.plugin)
        missing = now.missing
        try:
            if missing:
                _start(places, now, missing, shown)
        except BaseException:
            stop(process for name, process in now.alive.items() if name in missing)
            raise
    return now, bool(missing)


def down(places: Places) -> int:
    """Stop what `up` has started, nodes first, and all that they started; how many there were.

    Their files stay.
    """
    with Lock(places.home):
        now = deployed(places)
        running = {} if now is None else now.alive
        stop(process for name, process in running.items() if name != LINK)
        stop(process for name, process in running.items() if name == LINK)
        left = set() if now is None else now.started
        stop(left)
        (places.home / "up.json").unlink(missing_ok=True)
    return len(running) + len(left)


def _prepare(
    places: Places, nodes: int, tls: bool, data: str | None, plugin: Sequence[str]
) -> Deployment:
    """A new SuperLink has no runs and no nodes; the nodes' keys and memories stay."""
    for file in places.home.glob("superlink.db*"):
        file.unlink()
    (places.home / "logs").mkdir(exist_ok=True)
    if tls:
        make_certificates(places.keys)
        for key in (places.keys / f"node-{i}" for i in range(nodes)):
            if not key.exists():
                make_key(key)
    sockets = [socket.create_server((HERE, 0)) for _ in range(nodes + 1)]
    new = Deployment(tls, [one.getsockname()[1] for one in sockets], data, list(plugin))
    for one in sockets:
        one.close()
    certificate = places.keys / "ca.crt" if tls else None
    connect(places, new.address, insecure=not tls, root_certificates=certificate)
    return new


def _start(places: Places, now: Deployment, names: Sequence[str], shown: bool) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())  # in Flower's format
    deadline = time.monotonic() + PATIENCE
    unknown = not (places.home / "superlink.db").exists()
    ready, nodes = 0, [name for name in names if name != LINK]
    with bar("starting", len(names), shown=shown) as advance:
        if LINK in names:
            _begin(places, now, LINK, _link_command(places, now))
            while not _listens(now.ports[0]):
                _check(places, now, [LINK], deadline)
                time.sleep(0.1)
            advance(1)
        for i in range(now.nodes if now.tls and unknown else 0):
            flwr(places, "supernode", "register", str(places.keys / f"node-{i}.pub"), NAME)
        for name in nodes:
            _begin(places, now, name, _node_command(places, now, name))
        while ready < len(nodes):
            ready = sum(time_ >= since for time_ in online(places))
            advance(min(len(names) - len(nodes) + ready, len(names)))
            _check(places, now, names, deadline)


def _begin(places: Places, now: Deployment, name: str, command: list[str]) -> None:
    own = environment(places) | {MARK: now.mark}
    if now.plugin:  # as `moml` finds them, from the working folder too
        own["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), own.get("PYTHONPATH")]))
    process = start(command, _log(places, name), own)
    now.processes[name] = [process.pid, process.create_time()]
    write_text(json.dumps(asdict(now), indent=1) + "\n", places.home / "up.json")


def _link_command(places: Places, now: Deployment) -> list[str]:
    secure = [
        f"--ssl-ca-certfile={places.keys / 'ca.crt'}",
        f"--ssl-certfile={places.keys / 'server.crt'}",
        f"--ssl-keyfile={places.keys / 'server.key'}",
        "--enable-supernode-auth",
    ]
    where = [f"--host={HERE}", f"--port={now.ports[0]}"]
    database = f"--database={places.home / 'superlink.db'}"
    return ["flower-superlink", *where, database, *(secure if now.tls else ["--insecure"])]


def _node_command(places: Places, now: Deployment, name: str) -> list[str]:
    i, file = int(name.partition("-")[2]), places.home / f"{name}.toml"
    config = {"partition-id": i, "num-partitions": now.nodes}
    paths = {"state-dir": str(places.home / "state" / name)}
    paths |= {"data": now.data} if now.data else {}
    paths |= {"plugin": " ".join(now.plugin)} if now.plugin else {}
    write_text(toml(config) + toml(paths), file)
    secure = [
        f"--root-certificates={places.keys / 'ca.crt'}",
        f"--auth-supernode-private-key={places.keys / name}",
    ]
    where = [f"--superlink={now.address}", f"--host={HERE}", f"--port={now.ports[i + 1]}"]
    options = [f"--node-config={file}", *(secure if now.tls else ["--insecure"])]
    return ["flower-supernode", *where, *options]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HERE, port)) == 0


def _log(places: Places, name: str) -> Path:
    return places.home / "logs" / f"{name}.log"


def _last_lines(text: str) -> str:
    """The last lines of a program's output, without colours."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    return "\n".join([each for each in lines if each.strip()][-8:])


def _check(places: Places, now: Deployment, names: Sequence[str], deadline: float) -> None:
    """Raise where one of them has ended, or where the time is over."""
    for name in (name for name in now.missing if name in names and name in now.processes):
        log = _log(places, name)
        text = one_line(_last_lines(log.read_text(errors="replace")), 1000)
        raise FlowerError(f"{name} ended as it was started: {text} ({log})")
    if time.monotonic() > deadline:
        raise FlowerError(f"not ready after {PATIENCE:.0f} s; see {places.home / 'logs'}")
