"""Memories stay where they are, and come back as they were."""

import jax.numpy as jnp
import numpy as np
import pytest
from flwr.app import RecordDict

from moml.algorithms.parts.memory import Ema
from moml.errors import CheckpointError
from moml.flower.app.state import Place, keep, recall


def row(seed):
    u = {"w": jnp.asarray(np.random.default_rng(seed).normal(size=(3, 2)), jnp.float32)}
    return Ema(u, jnp.asarray(seed, jnp.int32))


def same(one, other):
    return (
        np.asarray(one.u["w"]).tobytes() == np.asarray(other.u["w"]).tobytes()
        and one.visits == other.visits
    )


@pytest.fixture
def place(tmp_path):
    return Place(RecordDict(), tmp_path, "mine", "abc", 7)


def restarted(place):
    return place._replace(records=RecordDict())


def files(place):
    return sorted(path.name for path in (place.folder / "mine").iterdir())


def test_the_same_bytes_from_the_context_and_after_a_restart(place):
    keep(place, -1, 4, row(4))
    assert same(recall(place, 4, row(0)), row(4))
    assert same(recall(restarted(place), 4, row(0)), row(4))
    assert same(recall(place._replace(folder=None), 4, row(0)), row(4))


def test_two_rounds_are_kept(place):
    for before, now in [(-1, 2), (2, 5), (5, 6)]:
        keep(place, before, now, row(now))
    assert [name[7:15] for name in files(place)] == ["00000005", "00000006"]
    assert sorted(place.records) == ["mine/000007-00000005-abc", "mine/000007-00000006-abc"]


def test_a_round_done_again_starts_from_the_memory_before_it(place):
    keep(place, -1, 2, row(2))
    keep(place, 2, 5, row(5))
    once = files(place)
    assert same(recall(restarted(place), 2, row(0)), row(2))
    keep(restarted(place), 2, 5, row(5))
    assert files(place) == once
    keep(restarted(place), 2, 6, row(6))  # the answer of round 5 was lost: it never counted
    assert [name[7:15] for name in files(place)] == ["00000002", "00000006"]


def test_another_run_and_another_task_have_memories_of_their_own(place, caplog):
    keep(place, -1, 2, row(2))
    keep(place._replace(task=1), -1, 2, row(1))
    assert recall(place._replace(run="def"), 2, row(0)) is None
    assert recall(place._replace(experiment="other"), 2, row(0)) is None
    assert "begins anew" in caplog.text
    keep(place._replace(run="def"), -1, 0, row(9))
    assert [name[:19] for name in files(place)] == ["000001-00000002-abc", "000007-00000000-def"]


def test_a_flipped_bit_is_refused(place):
    keep(place, -1, 2, row(2))
    (path,) = (place.folder / "mine").iterdir()
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match="damaged"):
        recall(restarted(place), 2, row(0))
