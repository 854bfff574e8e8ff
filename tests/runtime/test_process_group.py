"""Processes that agree: exchanged words, checkpoints in shares, the meeting before JAX's."""

import math
import socket
import time

import numpy as np
import pytest

from moml.errors import CheckpointError, ConfigError, LostProcess, OtherFailed
from moml.runtime.join import address_of, join, join_cluster, meet
from moml.runtime.process_group import ALONE
from moml.storage.arrays import write_arrays
from moml.storage.checkpoint import Checkpoints
from moml.storage.shares import Pieces, Share
from tests.support.process_groups import each, teams

N = 7
ROWS = np.arange(N * 2.0).reshape(N, 2)
STATE = {"w": np.array([1.0, 2.0]), "u": ROWS, "step": np.array(3)}


def test_all_hear_all_again_and_again():
    words, three = teams(3)
    for turn in range(4):
        told = each(three, lambda team, turn=turn: team.exchange("x", f"{team.process} {turn}"))
        assert told == [[f"{i} {turn}" for i in range(3)]] * 3
    assert len(words.words) == 3  # what was heard by all is not kept
    assert each(three, lambda team: team.agree("y", "" if team.leads else "no")) == [""] * 3
    assert ALONE.agree("x", "yes") == "yes" and ALONE.leads


def test_what_fails_for_one_fails_for_all():
    _, two = teams(2)

    def part(team):
        def work():
            if team.process:
                raise OSError("the disk is full")

        team.together("x", work)

    first, second = each(two, part)
    assert isinstance(first, OtherFailed) and str(first) == "process 1: the disk is full"
    assert isinstance(second, OSError)


def test_who_waits_for_one_that_is_gone_stops_with_a_sentence():
    words, two = teams(2)
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
    monkeypatch.setattr("moml.runtime.process_group.GLANCE", 50)

    def part(member):
        if member.process:
            return member.all_end("there is no table here", 10.0)
        with pytest.raises(OtherFailed, match=r"^process 1: there is no table here$"):
            member.exchange("x", "hello")
        return member.all_end("as it said", 10.0)

    assert each(teams(2)[1], part) == [True, True]
    assert not teams(2)[1][1].all_end("the others go on", 0.05)


def shared(first, end):
    return STATE | {"u": Share(first, ROWS[first:end], N)}


def save(folder, cuts, step=1):
    """A checkpoint by as many processes as there are cuts."""

    def part(given):
        team, (first, end) = given
        with Checkpoints(folder, team=team) as kept:
            kept.save(step, shared(first, end), {"by": team.process})

    _, members = teams(len(cuts))
    return each(list(zip(members, cuts, strict=True)), part)


def test_rows_of_several_processes_are_read_by_any_number(tmp_path):
    assert save(tmp_path, [(0, 4), (4, 7), (7, 7), (7, 7)]) == [None] * 4  # two without tasks
    found = Checkpoints(tmp_path).load(STATE)
    assert found.info == {"by": 0} and found.step == 1
    for name in STATE:
        np.testing.assert_array_equal(found.state[name], STATE[name])
        assert found.state[name].dtype == STATE[name].dtype

    def part(team):
        with Checkpoints(tmp_path, team=team) as kept:
            return kept.load(STATE, mapped=True)

    for member in each(teams(2)[1], part):
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
        team, (first, end) = given
        rows = ROWS[first:end] if team.leads else np.array([lambda: 0] * (end - first))
        with Checkpoints(tmp_path, team=team) as kept:
            kept.save(2, STATE | {"u": Share(first, rows, N)}, {})

    _, members = teams(2)
    first, second = each(list(zip(members, [(0, 4), (4, 7)], strict=True)), part)
    assert isinstance(first, CheckpointError) and "process 1: " in str(first)
    assert isinstance(second, CheckpointError)
    assert Checkpoints(tmp_path).load(STATE).step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["0000000001"]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def meeting(numbers, processes, wait=20.0):
    port = free_port()
    come = lambda given: meet("127.0.0.1", port, given[1], given[0], wait)
    return each([(number, processes) for number in numbers], come)


def test_processes_meet_in_any_order():
    assert meeting([2, 1, 0], 3) == [None] * 3


def test_who_did_not_come_is_named():
    first, second = meeting([0, 2], 4, wait=1.0)
    assert "of 4 processes [1, 3] did not come within 1 s" in str(first)
    assert isinstance(second, ConfigError) and "process 0 at" in str(second)


def test_the_same_number_twice_is_refused():
    told = meeting([0, 1, 1], 3, wait=5.0)
    assert all(isinstance(one, ConfigError) for one in told)
    assert "a second process 1" in str(told[0])


def test_processes_that_count_differently_are_refused():
    port = free_port()
    first, second = each([(0, 2), (1, 3)], lambda at: meet("127.0.0.1", port, at[1], at[0], 20.0))
    assert "told of 2 processes here, of 3 there" in str(first) and "process 0" in str(second)


@pytest.mark.parametrize(
    "greeting", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\xff\xfe\x80\n", b"moml"]
)
def test_a_stranger_is_not_counted(greeting):
    port = free_port()

    def come(number):
        if number is None:
            for _ in range(50):
                try:
                    with socket.create_connection(("127.0.0.1", port)) as line:
                        line.sendall(greeting)
                    return
                except ConnectionRefusedError:
                    time.sleep(0.1)
        if number == 1:
            time.sleep(0.3)
        meet("127.0.0.1", port, 2, number, 20.0)

    assert each([0, None, 1], come) == [None] * 3


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", b"\x00\xff\xfe", b"go\n"])
def test_a_stranger_at_the_address(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def part(number):
            if number:
                return meet("127.0.0.1", port, 2, 1, 20.0)
            with server.accept()[0] as line:
                line.sendall(answer)
                line.recv(100)  # and does not hang up
                line.recv(100)

        began = time.monotonic()
        told = str(each([0, 1], part)[1])
        assert time.monotonic() - began < 10
    assert told == (
        f"something else than moml answers at 127.0.0.1:{port}; give another --coordinator"
    )


def test_nobody_at_the_address():
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"no process 0 at 127.0.0.1:\d+ within 0.5 s \(.*refus"):
        meet("127.0.0.1", free_port(), 2, 1, 0.5)
    assert time.monotonic() - began < 30


def test_an_address_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{port}: Address alr"):
            meet("127.0.0.1", port, 2, 0, 1.0)


@pytest.mark.parametrize("words", ["here", "here:", "here:0", "here:70000", "here:x"])
def test_no_address(words):
    with pytest.raises(ConfigError, match="coordinator must be HOST:PORT"):
        address_of(words)


@pytest.mark.parametrize(
    "given, told",
    [
        ({"processes": 2}, "need both --processes and --process"),
        ({"process": 0}, "need both --processes and --process"),
        ({"coordinator": "127.0.0.1:9"}, "need both --processes and --process"),
        ({"processes": 2, "process": 2}, "from 0 to 1; given 2"),
        ({"processes": 0, "process": 0}, "processes must be a whole number from 1"),
        ({"processes": 2, "process": 0, "wait": 0.0}, "wait must be above 0"),
        ({"processes": 2, "process": 1, "wait": math.inf}, "up to a day; given inf"),
        ({"processes": 2, "process": 1, "wait": math.nan}, "wait must be above 0"),
    ],
)
def test_words_that_cannot_be(given, told):
    with pytest.raises(ConfigError, match=told):
        join(**given)


@pytest.mark.parametrize("wait", [math.inf, math.nan, 0.0, -1.0])
def test_a_wait_for_a_cluster_that_cannot_be(wait):
    with pytest.raises(
        ConfigError, match=f"wait must be above 0 seconds, up to a day; given {wait:g}"
    ):
        join_cluster(wait)


def test_one_process_needs_no_meeting():
    assert join() is ALONE
    assert join(processes=1, process=0) is ALONE
