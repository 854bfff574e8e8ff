"""A run on the server's disk: cut off and resumed; and which node is asked for what."""

import json

import jax
import numpy as np
import pytest

from moml.errors import ConfigError
from moml.storage.arrays import read_arrays
from tests.flower.common import federated, nodes, saved, serve, settings, small
from tests.flower.grid import InProcess


class Cut(Exception):
    """The server is killed."""


def memories(folder):
    """The bytes of every memory, by task and round: the run's own name in it differs."""
    found = folder.glob("node*/moml/*.safetensors")
    return {path.name[:15]: path.read_bytes() for path in found}


@pytest.mark.parametrize("round_", [1, 2, 3])
def test_cut_off_in_a_round_and_resumed(round_, tmp_path):
    config = small()
    whole, rows, _ = federated(config, tmp_path / "whole")
    run = settings(config, tmp_path / "cut" / "out")

    class Killed(InProcess):
        def pull_messages(self, ids):
            if self.seen[-1].metadata.group_id == str(round_):  # all clients have done their part
                raise Cut
            return super().pull_messages(ids)

    with pytest.raises(Cut):
        serve(Killed(run, nodes(3, tmp_path / "cut")), run)
    resumed, again = serve(InProcess(run, nodes(3, tmp_path / "cut")), run)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(whole, resumed, strict=True))
    untimed = lambda row: {key: row[key] for key in row if key != "seconds"}
    assert [untimed(row) for row in again] == [untimed(row) for row in rows]
    assert memories(tmp_path / "cut") == memories(tmp_path / "whole") != {}


def test_done_is_done_and_more_rounds_go_on(tmp_path):
    config = small()
    three, _, grid = federated(config, tmp_path)
    run = settings(config, tmp_path / "out")
    grid = InProcess(run, nodes(3, tmp_path))
    again, _ = serve(grid, run)
    kept = read_arrays(tmp_path / "out" / "w.safetensors").values()
    assert all(np.array_equal(a, b) for a, b in zip(three, kept, strict=True))
    assert not grid.seen and all(np.array_equal(a, b) for a, b in zip(three, again, strict=True))
    _, rows = serve(InProcess(run, nodes(3, tmp_path)), run | {"rounds": 4})
    assert [row["round"] for row in rows] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["scaffold", "fedadam"])
def test_what_the_server_keeps_outlives_a_stop(name, tmp_path):
    """Two rounds, then two more by a new server, are four: c, or the averages, go on."""
    config = small(method=name, decay_after=1.0)

    def state_of(folder, *rounds):
        for number in rounds:
            run = settings(config, tmp_path / folder / "out", rounds=number)
            serve(InProcess(run, nodes(3, tmp_path / folder)), run)
        return saved(config, tmp_path / folder / "out")

    cut, whole = state_of("cut", 2, 4), state_of("whole", 4)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(whole.server))
    jax.tree.map(np.testing.assert_array_equal, cut, whole)


@pytest.mark.parametrize(
    "change, word", [({"experiment": "other"}, "experiment"), ({"method": "fedavg"}, "method")]
)
def test_another_run_in_the_same_folder_is_refused(change, word, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    run = settings(small(), folder)
    about = {"experiment": "moml", "config": run["config"], "privacy": None, "run": "abc"}
    (folder / "run.json").write_text(json.dumps(about))
    if "method" in change:
        run["config"] = settings(small(method="localmoml"), folder)["config"]
    with pytest.raises(ConfigError, match=rf"another {word}"):
        serve(InProcess(run, nodes(1)), run | change)


def test_a_partition_without_a_node_is_named_and_the_run_goes_on(tmp_path):
    run = settings(small(tasks_per_step=6), tmp_path / "out", rounds=1)
    three = nodes(3)
    _, rows = serve(InProcess(run, {i: three[i] for i in (100, 102)}), run)
    reason = "no node holds this partition"
    assert rows[0]["failed"] == [{"partition": 1, "tasks": [1, 4], "reason": reason}]
    assert (rows[0]["answered"], rows[0]["drawn"]) == (4, 6)


def test_after_a_nodes_death_all_that_are_drawn_still_count(tmp_path, capsys):
    run = settings(small(tasks_per_step=6), tmp_path / "out", rounds=3)

    class Dying(InProcess):
        def get_node_ids(self):
            dead = any(message.metadata.group_id == "1" for message in self.seen)
            return [100, 102] if dead else [100, 101, 102]

    _, rows = serve(Dying(run, nodes(3)), run)
    assert [(row["answered"], row["drawn"]) for row in rows] == [(6, 6), (4, 6), (4, 6)]
    said = capsys.readouterr().out.splitlines()
    assert all("4 of 6 tasks answered" in line for line in said[-2:])


def test_of_two_nodes_with_one_partition_the_later_is_asked(tmp_path):
    run = settings(small(tasks_per_step=6), tmp_path / "out", rounds=2)

    class Joined(InProcess):
        def get_node_ids(self):
            late = any(message.metadata.group_id == "1" for message in self.seen)
            return [100, 101, 200] if late else [100, 101]

    grid = Joined(run, nodes(2) | {200: nodes(2)[101]})
    serve(grid, run)
    asked = lambda number: {
        m.metadata.dst_node_id for m in grid.seen if m.metadata.group_id == number
    }
    assert {100, 101} <= asked("1") and 200 not in asked("1")
    assert {100, 200} <= asked("2") and 101 not in asked("2")


def test_nodes_that_know_no_partition_or_another_number_are_left_out(tmp_path, caplog):
    run = settings(small(tasks_per_step=6), tmp_path / "out", rounds=1)
    wrong = {103: {}, 104: {"partition-id": 0, "num-partitions": 5}}
    _, rows = serve(InProcess(run, nodes(2) | wrong), run)
    assert rows[0]["answered"] == 6
    log = (tmp_path / "out" / "log.txt").read_text()
    assert "node 103 is left out: ConfigError" in log and "partition 0 of 5, others are of 2" in log


def test_no_node_at_all(tmp_path):
    run = settings(small(), tmp_path / "out", timeout=0.1, **{"min-nodes": 2})
    with pytest.raises(ConfigError, match=r"min-nodes = 2, but after 0.1 s there are 1"):
        serve(InProcess(run, nodes(1)), run)
    told = "no node says which partition it holds: ConfigError; the node's log says more"
    with pytest.raises(ConfigError, match=told):
        serve(InProcess(run, {100: {}}), run | {"min-nodes": 1})
