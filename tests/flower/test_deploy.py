"""Folders, processes, keys: what `moml flower` is made of, without Flower."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import tomllib

import psutil
import pytest

from moml.cli import run as moml
from moml.config.toml import load
from moml.errors import ConfigError, Diverged, FlowerError
from moml.flower.app.settings import DEFAULTS
from moml.flower.local import deploy, run
from moml.flower.local.certificates import make_certificates, make_key
from moml.flower.local.deploy import deployed, down, up
from moml.flower.local.folder import places_of, toml
from moml.flower.local.processes import alive, find, start, stop
from tests.support.services import mlflow_runs, services, tensorboard_rows, wandb_runs  # noqa: F401

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print(child.pid, flush=True)
time.sleep(300)
"""


@pytest.fixture
def places(tmp_path):
    moml(["flower", "init", str(tmp_path / "fed")])
    return places_of(tmp_path / "fed")


def started(tmp_path, script):
    return start([sys.executable, "-c", script], tmp_path / "log", os.environ)


def wait(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_init_writes_an_app_and_the_experiment(places, capsys):
    app = tomllib.loads((places.root / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["config"] == DEFAULTS
    assert app["components"]["clientapp"] == "moml.flower.app.client_app:app"
    assert load(places.config) == load("synthetic-clients")
    assert places.home.stat().st_mode & 0o777 == 0o700
    assert "insecure = false" in places.connections.read_text()
    with pytest.raises(ConfigError, match="is not empty"):
        moml(["flower", "init", str(places.root)])
    with pytest.raises(ConfigError, match=r"moml has no rounds; allowed: localmoml"):
        moml(["flower", "init", str(places.root / "other"), "--config", "sine"])
    assert not (places.root / "other").exists()
    with pytest.raises(ConfigError, match="is no folder of `moml flower init`"):
        moml(["flower", "down", str(places.home)])


def test_toml_of_any_text(tmp_path):
    odd = {"a": 'C:\\x "y"\n\té 😀', "b": 3, "c": 1e-05, "d": True}
    assert tomllib.loads(toml(odd, {"b": "words"})) == odd


def test_stop_ends_all_that_was_started_and_nothing_else(tmp_path):
    other = started(tmp_path, "import time; time.sleep(300)")
    mine = started(tmp_path, STUBBORN)
    wait(lambda: (tmp_path / "log").read_text().strip())
    child = psutil.Process(int((tmp_path / "log").read_text()))
    since = mine.create_time()
    assert find(mine.pid, since) == mine and alive(child)
    assert find(mine.pid, since - 60) is None  # this pid, once it is another's
    stop([mine], seconds=0.3)
    assert find(mine.pid, since) is None and not alive(child)
    assert alive(other)
    stop([other, other])
    assert not alive(other)
    stop([mine, other])  # they are gone: nothing happens


def test_a_process_that_ends_at_once_is_not_alive(tmp_path):
    short = started(tmp_path, "")
    wait(lambda: not alive(short))
    stop([short])


def test_certificates_are_for_this_machine_alone(tmp_path):
    make_certificates(tmp_path / "keys")
    make_certificates(tmp_path / "other")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "keys" / "server.crt", tmp_path / "keys" / "server.key")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        for _ in range(4):
            try:
                with server.wrap_socket(listening.accept()[0], server_side=True) as one:
                    one.sendall(one.recv(2))
            except OSError:  # refused by the other side
                continue

    thread = threading.Thread(target=serve)
    thread.start()

    def asked(authority, name):
        context = ssl.create_default_context(cafile=tmp_path / authority / "ca.crt")
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        plain = socket.create_connection(listening.getsockname())
        with plain, context.wrap_socket(plain, server_hostname=name) as one:
            one.sendall(b"hi")
            return one.recv(2)

    assert asked("keys", "127.0.0.1") == asked("keys", "localhost") == b"hi"
    for authority, name in (("keys", "example.org"), ("other", "localhost")):
        with pytest.raises(ssl.SSLCertVerificationError):
            asked(authority, name)
    thread.join(timeout=30)
    listening.close()


def test_a_key_is_what_ssh_keygen_makes(tmp_path):
    from cryptography.hazmat.primitives import serialization

    make_key(tmp_path / "node")
    key = serialization.load_ssh_private_key((tmp_path / "node").read_bytes(), None)
    public = serialization.load_ssh_public_key((tmp_path / "node.pub").read_bytes())
    assert key.public_key() == public and public.curve.name == "secp384r1"
    assert (tmp_path / "node").stat().st_mode & 0o777 == 0o600


def fake(monkeypatch, link, node):
    """Python instead of Flower's programs."""
    command = lambda script, port: [sys.executable, "-c", script.replace("PORT", str(port))]
    monkeypatch.setattr(deploy, "_link_command", lambda p, now: command(link, now.ports[0]))
    monkeypatch.setattr(deploy, "_node_command", lambda p, now, name: command(node, 0))


LISTENS = "import socket, time; s = socket.create_server(('127.0.0.1', PORT)); time.sleep(300)"
FAILS = "print('the key is not registered'); raise SystemExit(1)"


def test_if_the_superlink_does_not_start(places, monkeypatch):
    fake(monkeypatch, FAILS, LISTENS)
    with pytest.raises(FlowerError, match=r"superlink ended .* the key is not registered \(.*log"):
        up(places, 2, False, shown=False)
    assert deployed(places).alive == {}


def test_if_a_node_does_not_start_nothing_stays(places, monkeypatch):
    fake(monkeypatch, LISTENS, FAILS)
    seen = []

    def online(places):
        wait(lambda: len(deployed(places).alive) == 1)
        seen.extend(deployed(places).alive.values())
        return []

    monkeypatch.setattr(deploy, "online", online)
    with pytest.raises(FlowerError, match="node-0 ended as it was started: the key is not"):
        up(places, 2, False, shown=False)
    assert len(seen) == 1 and not alive(seen[0])


def test_up_starts_what_is_missing_and_down_what_it_started(places, monkeypatch):
    fake(monkeypatch, LISTENS, "import time; time.sleep(300)")
    monkeypatch.setattr(deploy, "online", lambda places: ["9999"] * 2)
    now, new = up(places, 2, False, shown=False)
    assert new and now.nodes == 2 and not now.missing
    assert up(places, None, False, shown=False) == (now, False)
    for other in ((3, False), (2, True)):
        with pytest.raises(ConfigError, match="is up with 2 nodes; `moml flower down`"):
            up(places, *other, shown=False)
    before = now.alive
    os.kill(before["node-1"].pid, signal.SIGKILL)
    wait(lambda: not alive(before["node-1"]))
    now, new = up(places, None, False, shown=False)
    assert new and now.alive["superlink"] == before["superlink"]
    assert now.alive["node-0"] == before["node-0"] and now.alive["node-1"] != before["node-1"]
    before = now.alive
    os.kill(before["superlink"].pid, signal.SIGKILL)
    wait(lambda: not alive(before["superlink"]))
    now, new = up(places, None, False, shown=False)  # nodes that lost theirs begin anew
    assert new and not now.missing and not any(map(alive, before.values()))
    assert down(places) == 3 and down(places) == 0
    assert now.alive == {}


LEAVES = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
print([subprocess.Popen(sleep, start_new_session=own).pid for own in (False, True)], flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("then", ["down", "up", "up without the superlink"])
def test_what_a_killed_process_had_started_ends_too(places, monkeypatch, tmp_path, then):
    fake(monkeypatch, LISTENS, LEAVES)
    monkeypatch.setattr(deploy, "online", lambda places: ["9999"])
    now, _ = up(places, 1, False, shown=False)
    log = places.home / "logs" / "node-0.log"
    wait(lambda: "]" in log.read_text())
    children = [psutil.Process(pid) for pid in json.loads(log.read_text())]
    other = started(tmp_path, "import time; time.sleep(300)")
    dead = {"down": ["node-0"], "up": ["superlink", "node-0"]}.get(then, ["superlink"])
    for process in [now.alive[name] for name in dead]:
        os.kill(process.pid, signal.SIGKILL)
        wait(lambda process=process: not alive(process))
    assert all(map(alive, children))
    if then == "down":
        assert down(places) == 3  # the superlink, and what the node left
    else:
        up(places, 1, False, shown=False)
    assert not any(map(alive, children)) and alive(other)
    down(places)
    stop([other])
    assert not deploy.Deployment(False, [1, 2]).started


def test_nodes_are_told_where_their_data_lies(places, tmp_path):
    now = deploy.Deployment(False, [1, 2, 3], str(tmp_path / "rows.csv"))
    words = deploy._node_command(places, now, "node-1")
    told = tomllib.loads((places.home / "node-1.toml").read_text())
    assert f"--node-config={places.home / 'node-1.toml'}" in words and "--insecure" in words
    state = str(places.home / "state" / "node-1")
    assert told == {
        "partition-id": 1, "num-partitions": 2, "state-dir": state, "data": now.data,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        moml(["flower", "up", str(places.root), "--data", now.data])


def test_what_cannot_be_run_is_said_before(places, monkeypatch):
    with pytest.raises(FlowerError, match=r"no SuperLink to be asked.*moml flower up"):
        moml(["flower", "run", str(places.root)])
    monkeypatch.setattr(run, "online", lambda places: ["now"])
    for words, told in (
        (["--method", "maml"], "maml has no rounds"),
        (["--rounds", "-1"], "rounds must be a whole number from 0; got -1"),
        (["--resume"], "has no run to go on with"),
    ):
        with pytest.raises(ConfigError, match=told):
            moml(["flower", "run", str(places.root), *words])
    places.config.write_text("eta = 'much'\n[problem]\nkind = 'synthetic'\n")
    with pytest.raises(ConfigError, match=r"config.toml: .*eta must be a number"):
        moml(["flower", "run", str(places.root)])
    assert not places.runs.exists()


def test_a_run_that_is_done_is_not_resumed(places):
    given = {"rounds": 2}
    folder, settings = run.new(places, given)
    assert settings.rounds == 2 and settings.out == folder
    with pytest.raises(ConfigError, match="was begun with another method"):
        run.last(places, {"method": "pfedme"})
    line = lambda number: json.dumps({"round": number, "rounds": 2}) + "\n"
    (folder / "rounds.jsonl").write_text(line(1) + line(2)[:5])
    assert [row["round"] for row in run.rounds(folder)] == [1]  # of the other a part is written
    assert run.last(places, {})[1] == settings
    (folder / "rounds.jsonl").write_text(line(1) + line(2))
    with pytest.raises(ConfigError, match="is finished; with --rounds above 2 it goes on"):
        run.last(places, {})
    assert run.last(places, {"rounds": 5})[1].rounds == 5


def test_without_flower_the_commands_can_be_imported():
    words = (
        "import sys; sys.modules['flwr'] = None; import moml.flower.local.run, moml.flower.app.rows"
    )
    subprocess.run([sys.executable, "-c", words], check=True, timeout=120)


def test_without_flower_its_extra_is_named(places, monkeypatch):
    from moml.flower.local import folder

    monkeypatch.setattr(folder.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match=r"pip install 'moml\[flower\]'"):
        moml(["flower", "up", str(places.root)])


def round_row(number):
    row = {"round": number, "rounds": 2, "loss": 0.5 / number, "before": 2.0, "after": 1.0}
    row |= {"drawn": 9, "answered": 6, "down": 100, "up": 90, "seconds": 1.5, "epsilon": None}
    return row | {"metric": "mse", "failed": [], "released": True}


def test_every_round_is_shown_however_late(places, monkeypatch, services):  # noqa: F811
    """The last one may be written while the SuperLink is asked, and says that the run is over."""
    folder, settings = run.new(places, {"rounds": 2})
    seen, file = [], folder / "rounds.jsonl"

    def flwr(places, word, *rest):
        if word == "list":
            file.write_text("".join(json.dumps(round_row(number)) + "\n" for number in (1, 2)))
        return {"run-id": "7", "runs": [{"status": "finished:completed", "status-details": ""}]}

    monkeypatch.setattr(run, "flwr", flwr)
    monkeypatch.setattr(run, "SOON", 0.0)
    log = ("wandb", "mlflow", "tensorboard")
    run.run(places, folder, settings, lambda row: seen.append(row["round"]), log)
    assert seen == [1, 2]
    want = {n: {k: round_row(n)[k] for k in run.LOGGED if k != "epsilon"} for n in (1, 2)}
    (mine,), (theirs,) = wandb_runs(services), mlflow_runs(services)
    assert mine["name"] == theirs["name"] == folder.name
    assert mine["config"]["method"] == theirs["params"]["method"] == settings.config.method
    for rows in (mine["rows"], theirs["rows"], tensorboard_rows(folder / "tensorboard")):
        assert rows.keys() == want.keys()
        assert all(rows[n] == pytest.approx(want[n]) for n in want)


@pytest.mark.parametrize(
    "names, told",
    [
        (["neptune"], "log must be of tensorboard, wandb, mlflow; got 'neptune'"),
        (["mlflow", "mlflow"], "log must name each service once; got mlflow mlflow"),
        (["wandb"], r"--log wandb needs wandb: pip install 'moml\[wandb\]'"),
    ],
)
def test_services_are_checked_before_a_run_is_made(places, monkeypatch, names, told):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=f"^{told}$"):
        moml(["flower", "run", str(places.root), "--log", *names])
    assert not places.runs.exists() or not list(places.runs.iterdir())


@pytest.mark.parametrize(
    "why, kind", [("no room", FlowerError), ("it diverged at round 2", Diverged)]
)
def test_a_run_that_fails_says_why(places, monkeypatch, why, kind):
    folder, settings = run.new(places, {"rounds": 2})
    ended = {"status": "finished:failed", "status-details": why}
    monkeypatch.setattr(run, "flwr", lambda *_: {"run-id": "7", "runs": [ended]})
    monkeypatch.setattr(run, "SOON", 0.0)
    told = (
        f"finished:failed: {why}; 0 rounds done; go on with: moml flower run .* --log tensorboard$"
    )
    with pytest.raises(kind, match=told):
        run.run(places, folder, settings, print, ["tensorboard"])
