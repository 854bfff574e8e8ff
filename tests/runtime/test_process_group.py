"""Processes of a run: exchanged values, checkpoints in shares, joining."""

import math
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from moml.errors import CheckpointError, ConfigError, LostProcess, OtherFailed
from moml.runtime.process_group import ALONE, join
from moml.storage.arrays import write_arrays
from moml.storage.checkpoint import Checkpoints
from moml.storage.shares import Pieces, Share
from tests.support.process_groups import each, process_groups

N = 7
ROWS = np.arange(N * 2.0).reshape(N, 2)
STATE = {"w": np.array([1.0, 2.0]), "u": ROWS, "step": np.array(3)}


def test_all_hear_all_again_and_again():
    words, three = process_groups(3)
    for turn in range(4):
        told = each(three, lambda group, turn=turn: group.exchange("x", f"{group.process} {turn}"))
        assert told == [[f"{i} {turn}" for i in range(3)]] * 3
    assert len(words.words) == 3  # what was heard by all is not kept
    assert each(three, lambda group: group.agree("y", "" if group.leads else "no")) == [""] * 3
    assert ALONE.agree("x", "yes") == "yes" and ALONE.leads


def test_what_fails_for_one_fails_for_all():
    _, two = process_groups(2)

    def part(group):
        def work():
            if group.process:
                raise OSError("the disk is full")

        group.run_all("x", work)

    first, second = each(two, part)
    assert isinstance(first, OtherFailed) and str(first) == "process 1: the disk is full"
    assert isinstance(second, OSError)


def test_who_waits_for_one_that_is_gone_stops_with_a_sentence():
    words, two = process_groups(2)
    words.gone = True
    with pytest.raises(LostProcess, match="process 0 of 2 stops: another one was lost") as told:
        two[0].exchange("x", "hello")
    assert told.value.exit_code == 1
    with pytest.raises(LostProcess, match="Gloo all-reduce"), two[1].watch():
        raise ValueError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer")
    with pytest.raises(ValueError, match="a slip"), two[1].watch():
        raise ValueError("a slip of ours")
    with pytest.raises(ValueError, match="Gloo"), ALONE.watch():
        raise ValueError("Gloo")


def test_the_end_of_one_is_the_end_of_those_who_wait_for_it(monkeypatch):
    monkeypatch.setattr("moml.runtime.process_group.POLL", 50)

    def part(member):
        if member.process:
            return member.finish("there is no table here", 10.0)
        with pytest.raises(OtherFailed, match=r"^process 1: there is no table here$"):
            member.exchange("x", "hello")
        return member.finish("as it said", 10.0)

    assert each(process_groups(2)[1], part) == [True, True]
    assert not process_groups(2)[1][1].finish("the others go on", 0.05)


def shared(first, end):
    return STATE | {"u": Share(first, ROWS[first:end], N)}


def save(folder, cuts, step=1):
    """A checkpoint by as many processes as there are cuts."""

    def part(given):
        group, (first, end) = given
        with Checkpoints(folder, group=group) as kept:
            kept.save(step, shared(first, end), {"by": group.process})

    _, members = process_groups(len(cuts))
    return each(list(zip(members, cuts, strict=True)), part)


def test_rows_of_several_processes_are_read_by_any_number(tmp_path):
    assert save(tmp_path, [(0, 4), (4, 7), (7, 7), (7, 7)]) == [None] * 4  # two without tasks
    found = Checkpoints(tmp_path).load(STATE)
    assert found.info == {"by": 0} and found.step == 1
    for name in STATE:
        np.testing.assert_array_equal(found.state[name], STATE[name])
        assert found.state[name].dtype == STATE[name].dtype

    def part(group):
        with Checkpoints(tmp_path, group=group) as kept:
            return kept.load(STATE, mapped=True)

    for member in each(process_groups(2)[1], part):
        assert isinstance(member.state["u"], Pieces)
        np.testing.assert_array_equal(member.state["u"][3:6], ROWS[3:6])  # over the seam
        np.testing.assert_array_equal(member.state["u"][5:9], ROWS[5:])
        np.testing.assert_array_equal(member.state["w"], STATE["w"])


def test_one_process_writes_over_what_several_wrote(tmp_path):
    save(tmp_path, [(0, 4), (4, 7)])
    with Checkpoints(tmp_path) as kept:
        assert kept.rewrite(STATE, lambda state: state | {"u": state["u"] + 1}) == []
        np.testing.assert_array_equal(kept.load(STATE).state["u"], ROWS + 1)
    assert not [*(tmp_path / "0000000001").glob("part-*")]


def test_a_changed_or_missing_share_is_found(tmp_path):
    save(tmp_path, [(0, 4), (4, 7)], step=1)
    save(tmp_path, [(0, 4), (4, 7)], step=2)
    file = tmp_path / "0000000002" / "part-0001.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert Checkpoints(tmp_path).load(STATE).step == 1
    save(tmp_path / "gap", [(2, 4), (4, 7)])
    with pytest.raises(CheckpointError, match="rows 0 to 2 are missing"):
        Checkpoints(tmp_path / "gap").load(STATE)


def test_a_checkpoint_without_the_last_rows_is_refused(tmp_path):
    save(tmp_path, [(0, 4)])
    with pytest.raises(CheckpointError, match=r"\['u'\] float64\[4, 2\] where .*\[7, 2\] is"):
        Checkpoints(tmp_path).load(STATE)


def test_rows_go_into_the_folder_of_the_first_process_or_nowhere(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        write_arrays(tmp_path / "elsewhere" / "part-0001.safetensors", {"u@0": ROWS})
    assert not (tmp_path / "elsewhere").exists()


def test_a_share_that_cannot_be_written_leaves_the_last_checkpoint(tmp_path):
    save(tmp_path, [(0, 4), (4, 7)])

    def part(given):
        group, (first, end) = given
        rows = ROWS[first:end] if group.leads else np.array([lambda: 0] * (end - first))
        with Checkpoints(tmp_path, group=group) as kept:
            kept.save(2, STATE | {"u": Share(first, rows, N)}, {})

    _, members = process_groups(2)
    first, second = each(list(zip(members, [(0, 4), (4, 7)], strict=True)), part)
    assert isinstance(first, CheckpointError) and "process 1: " in str(first)
    assert isinstance(second, CheckpointError)
    assert Checkpoints(tmp_path).load(STATE).step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["0000000001"]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


JOIN = """
import sys
from moml.errors import MomlError
from moml.runtime.process_group import join
try:
    join(*(kind(word) for kind, word in zip((str, int, int), sys.argv[2:])), wait=int(sys.argv[1]))
except MomlError as error:
    print(f"moml: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def started(port, wait, *numbers):
    """Processes (count, number) that join."""
    command = [sys.executable, "-c", JOIN, str(wait), f"127.0.0.1:{port}"]
    begin = lambda given: subprocess.Popen([*command, *given.split()], stderr=subprocess.PIPE)
    return [begin(given) for given in numbers]


def ends(processes):
    """Exit code and last line of each."""
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    return [
        (process.returncode, "".join(error.splitlines()[-1:]))
        for process, error in zip(processes, errors, strict=True)
    ]


def test_processes_join_in_any_order():
    """A stranger at the port is not counted."""
    port = free_port()
    processes = started(port, 60, "3 2", "3 0")
    for _ in range(300):
        try:
            with socket.create_connection(("127.0.0.1", port)) as line:
                line.sendall(b"GET / HTTP/1.1\r\n")
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    processes += started(port, 60, "3 1")
    assert ends(processes) == [(0, "")] * 3


def test_processes_that_do_not_come_are_an_error_of_the_others():
    """Alone, too few, one number twice, other counts."""
    groups = [["2 1"], ["3 0", "3 1", "3 1"], ["3 0", "2 1"]]
    processes = [one for group in groups for one in started(free_port(), 2, *group)]
    for code, line in ends(processes):
        assert code == 2 and line.startswith("moml: not all processes came to 127.0.0.1:"), line
        assert "within 2 s; is each one running, under its own number" in line


def test_a_stranger_at_the_address():
    with socket.create_server(("127.0.0.1", 0)) as server:  # which does not answer
        [(code, line)] = ends(started(server.getsockname()[1], 1, "2 1"))
        assert code == 2 and "not all processes came to" in line


def test_an_address_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot listen at {address}: Address alr"):
            join(address, 2, 0, wait=1.0)


@pytest.mark.parametrize("words", ["here", "here:", "here:0", "here:70000", "here:x"])
def test_no_address(words):
    with pytest.raises(ConfigError, match="coordinator must be HOST:PORT"):
        join(words, 2, 0)


@pytest.mark.parametrize(
    "given, told",
    [
        ({"processes": 2}, "need both --processes and --process"),
        ({"process": 0}, "need both --processes and --process"),
        ({"coordinator": "127.0.0.1:9"}, "need both --processes and --process"),
        ({"processes": 2, "process": 2}, "from 0 to 1; got 2"),
        ({"processes": 0, "process": 0}, "processes must be a whole number from 1"),
        ({"processes": 2, "process": 0, "wait": 0.0}, "wait must be above 0"),
        ({"processes": 2, "process": 1, "wait": math.inf}, "up to a day; got inf"),
        ({"processes": 2, "process": 1, "wait": math.nan}, "wait must be above 0"),
    ],
)
def test_words_that_cannot_be(given, told):
    with pytest.raises(ConfigError, match=told):
        join(**given)


@pytest.mark.parametrize("wait", [math.inf, math.nan, 0.0, -1.0])
def test_a_wait_for_a_cluster_that_cannot_be(wait):
    with pytest.raises(
        ConfigError, match=f"wait must be above 0 seconds, up to a day; got {wait:g}"
    ):
        join(cluster=True, wait=wait)


def test_one_process_needs_no_meeting():
    assert join() is ALONE
    assert join(processes=1, process=0) is ALONE
