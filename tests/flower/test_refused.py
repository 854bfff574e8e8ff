"""Who and what is refused by a SuperLink with TLS and node keys; real processes. `make test-flower`

Flower's node signs the time of a request, and TLS protects all of it: so both are spoiled here.
"""

import socket
import subprocess
import time

import httpx
import pytest
from benchmarks.proxy import Proxy
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from moml.flower.local.certificates import make_key
from moml.flower.local.deploy import deployed, flwr, online
from moml.flower.local.folder import NAME, environment
from moml.flower.local.processes import start, stop
from tests.flower.common import small
from tests.flower.federation import federation

pytestmark = pytest.mark.slow
REFUSED = {  # and what Flower says to it
    "with an unknown key": "[code: 2004]",
    "without a key": "[code: 2001]",
    "in plain text": "Exit Code: 305",
}


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused") / "fed"
    with federation(folder, small(), "--nodes", 1, "--tls") as own:
        yield own


def command(fed, *secure, port=None):
    port = port or deployed(fed.places).ports[0]
    own = fed.places.home / "node-0.toml"
    where = [f"--superlink=127.0.0.1:{port}", f"--node-config={own}"]
    return ["flower-supernode", *where, *secure]


def free_port(words):
    with socket.create_server(("127.0.0.1", 0)) as one:
        return [*words, f"--port={one.getsockname()[1]}"]


def registered(fed, name):
    """A new node's key, which the SuperLink knows."""
    key = fed.places.keys / name
    make_key(key)
    flwr(fed.places, "supernode", "register", f"{key}.pub", NAME)
    return key


@pytest.mark.parametrize("who", REFUSED)
def test_a_node_is_refused(fed, tmp_path, who):
    make_key(tmp_path / "key")
    trusted = f"--root-certificates={fed.places.keys / 'ca.crt'}"
    own = f"--auth-supernode-private-key={tmp_path / 'key'}"
    secure = {"with an unknown key": [trusted, own], "without a key": [trusted]}
    words = free_port(command(fed, *secure.get(who, ["--insecure", "--max-retries=1"])))
    with open(tmp_path / "log", "w") as file:  # no pipe: what the node started would hold it open
        node = subprocess.Popen(words, env=environment(fed.places), stdout=file, stderr=file)
        code = node.wait(timeout=120)
    told = (tmp_path / "log").read_text()
    assert code == 1, told
    assert REFUSED[who] in told, told
    assert "SuperNode ID" not in told and len(online(fed.places)) == 1


def test_a_spoiled_wire(fed):
    """One bit of each TLS record is turned: no request arrives. Left alone, the node gets in."""
    key = registered(fed, "wired")
    seen = []

    def spoil(data, before):
        if before == 0:  # the greeting of TLS goes through
            return data
        seen.append(len(data))
        return data[:-1] + bytes([data[-1] ^ 1])

    wire = Proxy(deployed(fed.places).ports[0], spoil)
    secure = [f"--root-certificates={fed.places.keys / 'ca.crt'}"]
    secure += [f"--auth-supernode-private-key={key}"]
    log = fed.places.home / "logs" / "wired.log"
    words = free_port(command(fed, *secure, port=wire.port))
    node = start(words, log, environment(fed.places))
    try:
        wait(lambda: len(seen) >= 3)
        assert "SuperNode ID" not in log.read_text() and len(online(fed.places)) == 1
        wire.spoil = lambda data, before: data
        wait(lambda: len(online(fed.places)) == 2)
        assert "SuperNode ID" in log.read_text() and wire.up > 0
    finally:
        stop([node])
        wire.close()


def wait(condition):
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


class Later:
    """A signed request whose time is another than the signed one."""

    def intercept(self, context, call_next):
        (name,) = (key for key in context.request.headers if "timestamp" in key)
        old = context.request.headers[name]
        context.request.headers[name] = old.replace(old[20:26], f"{int(old[20:26]) ^ 1:06d}")
        return call_next(context)


def test_a_signature_that_does_not_fit(fed):
    key = load_ssh_private_key(registered(fed, "signed").read_bytes(), None)
    signed = NodeAuthHttpInterceptor(key, key.public_key())
    request = ActivateNodeRequest(
        public_key=public_key_to_bytes(key.public_key()), heartbeat_interval=30.0
    )
    for spoiled in ([Later()], []):
        with FleetHttpClient.from_server_address(
            deployed(fed.places).address,
            False,
            (fed.places.keys / "ca.crt").read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor("SuperNode"), signed, *spoiled],
        ) as client:
            if spoiled:
                with pytest.raises(httpx.HTTPStatusError) as refused:
                    client.ActivateNode(request)
                assert refused.value.response.status_code == 401
            else:
                assert client.ActivateNode(request).node_id
