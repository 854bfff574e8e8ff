"""What goes wrong in a federation of real processes, and how it goes on. `make test-flower`"""

import json
import os
import signal

import jax
import numpy as np
import psutil
import pytest
from flwr.app import Error, Message

from moml.config.toml import dump
from moml.flower.app.client_app import app as moml_app
from moml.flower.app.privacy import epsilon_after
from moml.flower.local.deploy import flwr
from moml.flower.local.folder import NAME
from tests.flower.common import federated, model, small
from tests.flower.federation import equal_to_the_simulator, federation
from tests.support.processes import ended

pytestmark = pytest.mark.slow
CARRIED = {"carried": True, "tasks_per_step": 6}  # all of the 6 tasks, in every round


def memories(fed, node):
    """Every file of a node's memories by its name, and its bytes."""
    place = fed.places.home / "state" / node
    return {path.name: path.read_bytes() for path in place.rglob("*.safetensors")}


def at_work(pid):
    """Whether a node has a client at work: its process has a grandchild."""
    return any(child.children() for child in psutil.Process(pid).children())


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three") / "fed"
    with federation(folder, small(), "--nodes", 3) as fed:
        yield fed


METHODS = {
    "localmoml": {"method": "localmoml"},
    "carried": {"method": "localmoml", "carried": True},
    "per-fedavg": {"method": "per-fedavg"},
    "pfedme": {"method": "pfedme", "prox": 5.0, "prox_steps": 2, "server_rate": 0.7},
    "fedavg": {"method": "fedavg"},
    "ditto": {"method": "ditto"},
    "scaffold": {"method": "scaffold"},
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_on_real_nodes(three, name):
    """Cross-device: 4 of 6 tasks in a round, of two on each of three nodes."""
    config = small(**METHODS[name], seed=21)
    three.places.config.write_text(dump(config))
    three.does("run")
    assert [row["answered"] for row in three.rounds] == [4, 4, 4]
    rough = name == "hessian-free"  # it divides the rounding of a gradient by a small step
    equal_to_the_simulator(three.out, config, 1e-3 if rough else 1e-5)


def test_a_node_is_killed_and_comes_back(tmp_path):
    config = small(**CARRIED, iterations=10, seed=22, decay_after=1.0)  # rounds change no step
    with federation(tmp_path / "fed", config, "--nodes", 3) as fed:
        run = fed.begins("run", "--rounds", 3)
        fed.waits(run, lambda: len(fed.rounds) >= 1)
        before = memories(fed, "node-1")
        assert len(before) == 2  # of its tasks 1 and 4, after the first round
        fed.waits(run, lambda: at_work(fed.pid("node-1")))
        os.kill(fed.pid("node-1"), signal.SIGKILL)  # in the middle of the second
        fed.waits(run, lambda: len(fed.rounds) >= 2)
        fed.does("up")  # again, while the run is going on
        out, error = ended(run)
        assert run.returncode == 0, error
        second = fed.rounds[1]
        assert second["answered"] == 4
        assert [(one["partition"], one["tasks"]) for one in second["failed"]] == [(1, [1, 4])]
        assert "left out: partition 1 (tasks 1 4)" in out
        kept = memories(fed, "node-1")
        assert all(kept.get(name, content) == content for name, content in before.items())
        fed.does("run", "--resume", "--rounds", 5)
        assert [row["answered"] for row in fed.rounds[3:]] == [6, 6]
        assert "begins anew" not in fed.log("node-1")
        missed = {(row["round"], one["partition"]) for row in fed.rounds for one in row["failed"]}
        assert (2, 1) in missed
        with jax.enable_x64(False):
            expected, *_ = federated(config, tmp_path / "same", app=deaf(missed))
            mine = model(config, fed.out)
        for one, two in zip(mine, expected, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def deaf(missed):
    """The same client app in this process, which fails in these rounds at these partitions."""

    def app(message, context):
        if message.metadata.message_type.startswith("train"):
            number = message.content["config"]["server-round"]
            if (number, context.node_config["partition-id"]) in missed:
                return Message(Error(2, "as the other did"), reply_to=message)
        return moml_app(message, context)

    return app


def test_the_superlink_is_killed_and_the_run_goes_on(tmp_path):
    config = small(**CARRIED, iterations=6, seed=23)
    with federation(tmp_path / "fed", config, "--nodes", 2, "--tls") as fed:
        run = fed.begins("run")
        fed.waits(run, lambda: len(fed.rounds) >= 1)
        fed.waits(run, lambda: at_work(fed.pid("node-0")))
        os.kill(fed.pid("superlink"), signal.SIGKILL)  # in the middle of the second round
        _, error = ended(run)
        assert run.returncode == 1 and "the SuperLink does not answer any more" in error
        done = len(fed.rounds)
        assert f"{done} round" in error and f"moml flower up {fed.places.root} && " in error
        assert done < 3
        fed.does("up")
        told, _ = fed.does("run", "--resume")
        assert told.splitlines()[2].split()[0] == f"{done + 1}/3"
        equal_to_the_simulator(fed.out, config)


def test_stopped_by_hand_and_resumed(tmp_path):
    config = small(**CARRIED, iterations=6, seed=24)
    with federation(tmp_path / "fed", config, "--nodes", 2) as fed:
        run = fed.begins("run")
        fed.waits(run, lambda: len(fed.rounds) >= 1)
        run.send_signal(signal.SIGINT)
        _, error = ended(run)
        assert run.returncode == 130, error
        assert f"go on with: moml flower run {fed.places.root} --resume" in error
        (status,) = [one["status"] for one in flwr(fed.places, "list", NAME)["runs"]]
        assert status == "finished:stopped" and len(fed.rounds) < 3
        fed.does("run", "--resume")
        equal_to_the_simulator(fed.out, config)
        code, error = fed.fails("run", "--resume")
        assert code == 2 and "is finished" in error
        (fed.out / "run.json").write_text("spoiled")  # the server app will not have it
        code, error = fed.fails("run", "--resume", "--rounds", 4)
        assert code == 1 and "the run ended as finished:failed: " in error
        assert "cannot read" in error and "run.json" in error


def private(places):
    """An app whose clients add noise."""
    file = places.root / "pyproject.toml"
    file.write_text(file.read_text().replace('privacy = ""', 'privacy = "local"'))


def test_a_round_that_is_asked_again_counts_again(tmp_path):
    """The server's program is killed while nodes work; then a node, which leaves its client."""
    config = small(method="fedavg", tasks_per_step=6, iterations=4, seed=26)
    with federation(tmp_path / "fed", config, "--nodes", 2, change=private) as fed:
        run = fed.begins("run")
        fed.waits(run, lambda: len(fed.rounds) >= 1)
        count = lambda: json.loads((fed.out / "privacy.json").read_text())["releases"]
        fed.waits(run, lambda: count() == [2] * 6)
        everything = psutil.Process(fed.pid("superlink")).children(recursive=True)
        (server,) = [one for one in everything if "flwr-serverapp" in " ".join(one.cmdline())]
        server.kill()  # in the middle of the second round
        _, error = ended(run)
        assert run.returncode == 1 and len(fed.rounds) == 1, error
        fed.does("run", "--resume")
        assert [row["epsilon"] for row in fed.rounds] == [epsilon_after(i, 1.0) for i in (1, 3)]
        run = fed.begins("run")
        fed.waits(run, lambda: at_work(fed.pid("node-1")))
        os.kill(fed.pid("node-1"), signal.SIGKILL)
        run.send_signal(signal.SIGINT)
        ended(run)  # and nothing is left when it is down


BAD = """
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from moml.flower.app.client_app import app as good

app = ClientApp()


@app.query()
def query(message, context):
    return good(message, context)


@app.train()
def train(message, context):
    reply, which = good(message, context), context.node_config["partition-id"]
    spoil = [lambda x: x, lambda x: np.full_like(x, np.nan), lambda x: x[None]][which]
    arrays = {name: Array(spoil(one.numpy())) for name, one in reply.content["arrays"].items()}
    reply.content["arrays"] = ArrayRecord(arrays)
    return reply
"""


def spoiled(places):
    """An app whose second node answers with NaN, and whose third with another shape."""
    (places.root / "bad_client.py").write_text(BAD)
    file = places.root / "pyproject.toml"
    text = file.read_text().replace("moml.flower.app.client_app:app", "bad_client:app")
    file.write_text(text.replace('["pyproject.toml"]', '["pyproject.toml", "bad_client.py"]'))


def test_bad_answers_are_left_out_and_named(tmp_path):
    config = small(tasks_per_step=6, method="fedavg", iterations=4, seed=25)
    with federation(tmp_path / "fed", config, "--nodes", 3, change=spoiled) as fed:
        told, _ = fed.does("run")
        assert [row["answered"] for row in fed.rounds] == [2, 2]
        for row in fed.rounds:
            failed = {one["partition"]: one for one in row["failed"]}
            assert failed.keys() == {1, 2}
            assert failed[1]["tasks"] == [1, 4] and failed[2]["tasks"] == [2, 5]
            assert failed[1]["reason"] != failed[2]["reason"]
        assert told.count("left out: partition 1 (tasks 1 4): ") == 2
        assert told.count("left out: partition 2 (tasks 2 5): ") == 2
        with jax.enable_x64(False):
            bad = {(number, partition) for number in (1, 2) for partition in (1, 2)}
            expected, *_ = federated(config, tmp_path / "same", app=deaf(bad))
            mine = model(config, fed.out)
        for one, two in zip(mine, expected, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
