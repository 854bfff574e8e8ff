"""The store of memories on disk: back to a checkpoint, torn and damaged files, other runs."""

import os
from contextlib import closing

import numpy as np
import pytest

from moml.errors import CheckpointError, ConfigError
from moml.storage import rows_on_disk
from moml.storage.rows_file import WORD, layout_of
from moml.storage.rows_on_disk import RowsOnDisk
from moml.storage.undo import entries_in

ROWS = {"u": np.zeros((20, 3), np.float32), "visits": np.zeros(20, np.int32)}
EVERYONE = np.arange(20)


@pytest.fixture
def store(tmp_path):
    with closing(RowsOnDisk(tmp_path / "memory", tmp_path, 20, layout_of(ROWS))) as made:
        yield made


def write(store, chance):
    """New rows of some tasks."""
    ids = np.sort(chance.choice(20, 6, replace=False))
    store.write(ids, rows_of(store, ids, chance), store.read(ids))


def rows_of(store, ids, chance):
    count = len(ids)
    leaves = [chance.integers(1, 9, (count, 3)).astype(np.float32), np.ones(count, np.int32)]
    return store.pack(leaves, ids)


def steps(store):
    return [int(path.name.split("-")[1]) for path in store.logs()]


def entries(store, log):
    return entries_in(log, store.layout.stride, store._salt)


def log_of(store, step):
    [path] = store.folder.glob(f"undo-{step:010d}-*")
    return path


def test_the_rows_go_back_to_any_checkpoint_that_is_kept(store):
    chance = np.random.default_rng(0)
    store.create()
    at, notes = {}, {}
    for step in range(5):
        write(store, chance)
        notes[step] = store.saving(step, list(at)[-2:])
        at[step] = store.read(EVERYONE)
        write(store, chance)
        write(store, chance)
    assert steps(store) == [2, 3, 4]
    assert "cannot go back so far" in store.verify(notes[1])
    for step in (4, 3, 2):
        assert store.verify(notes[step]) is None
        store.close()
        store.back_to(step)
        np.testing.assert_array_equal(store.read(EVERYONE), at[step])
        assert steps(store) == [*range(2, step + 1)]
    assert "cannot go back so far" in store.verify(
        notes[3]
    )  # it is no more: the run went on from 2


def test_a_torn_record_is_passed_over_and_a_damaged_one_is_not(store):
    chance = np.random.default_rng(1)
    store.create()
    store.write(EVERYONE, rows_of(store, EVERYONE, chance), store.read(EVERYONE))
    notes = store.saving(7)
    before = store.read(EVERYONE)
    write(store, chance)
    log, size = log_of(store, 7), WORD + store.layout.stride
    first, count = 6 * size, lambda: sum(len(ids) for ids, _ in entries(store, log))
    assert count() == 6
    after = store.read(EVERYONE)
    write(store, chance)
    [(ids, rows)] = entries(store, log)
    ids, rows = ids[6:], rows[6:]
    store.file.write(np.sort(ids), rows[np.argsort(ids)])  # as if the second had only been logged
    np.testing.assert_array_equal(store.read(ids.copy()), after[ids])
    store.close()
    data = log.read_bytes()
    tail, end = len(data) - first, first + size * len(ids)
    cuts = {first + 1: 6, first + WORD: 6, end - 1: 5 + len(ids), end: 6 + len(ids), first: 6}
    logs = {data[:first] + bytes(tail): 6, data[:-1]: 6 + len(ids)}
    for torn, left in (logs | {data[:cut]: left for cut, left in cuts.items()}).items():
        log.write_bytes(torn)
        assert store.verify(notes) is None
        assert count() == left
    store.back_to(7)
    np.testing.assert_array_equal(store.read(EVERYONE), before)
    flipped = lambda byte: data[:byte] + bytes([data[byte] ^ 1]) + data[byte + 1 :]
    for begin in (0, first):  # the last one too: it is complete, so its row was overwritten
        for byte in (0, 3, WORD, WORD + 9, size - WORD, size - 1):
            log.write_bytes(flipped(begin + byte))
            assert store.verify(notes) == f"{log} is damaged at byte {begin}"
    log.write_bytes(data[: first + WORD] + bytes(tail - WORD))
    assert store.verify(notes) == f"{log} is damaged at byte {first}"


def test_a_flipped_bit_in_a_row_is_found(store):
    chance = np.random.default_rng(2)
    store.create()
    store.write(EVERYONE, rows_of(store, EVERYONE, chance), store.read(EVERYONE))
    path = store.folder / "rows"
    data = bytearray(path.read_bytes())
    data[5 * store.layout.stride + 3] ^= 4
    path.write_bytes(data)
    store.read(np.array([4, 6]))
    with pytest.raises(CheckpointError, match="the row of task 5 has another checksum"):
        store.read(np.array([4, 5, 6]))


def test_rows_are_read_to_the_end_however_few_bytes_come_at_once(store, monkeypatch):
    store.create()
    store.write(EVERYONE, rows_of(store, EVERYONE, np.random.default_rng(5)), store.read(EVERYONE))
    rows, preadv = store.read(EVERYONE), os.preadv
    few = lambda handle, parts, place: preadv(handle, [parts[0][:50]], place)
    monkeypatch.setattr(os, "preadv", few)
    np.testing.assert_array_equal(store.read(EVERYONE), rows)
    os.truncate(store.folder / "rows", 100)
    with pytest.raises(CheckpointError, match="rows ends among the rows from task 3 on"):
        store.read(np.array([1, 3, 4, 5]))


def test_another_store_is_refused_and_both_are_named(store, tmp_path):
    store.create()
    notes = store.saving(0)
    store.close()

    def verify(n, rows):
        with closing(RowsOnDisk(store.folder, tmp_path, n, layout_of(rows))) as other:
            return other.verify(notes)

    half = ROWS | {"u": ROWS["u"].astype(np.float16)}
    wide = ROWS | {"u": np.zeros((20, 4), np.float32)}
    was = r"\['u'\] float32\[3\], \['visits'\] int32\[\]"
    assert verify(20, ROWS) is None
    for rows, said in ((half, r"float16\[3\]"), (wide, r"float32\[4\]")):
        assert verify(20, rows).startswith(f"{store.folder} holds memories with row = ")
        with pytest.raises(CheckpointError, match=rf"row = {was}; this run needs row = .*{said}"):
            RowsOnDisk(store.folder, tmp_path, 20, layout_of(rows)).forget([3])
    tasks = f"{store.folder} holds memories with tasks = 20; this run needs tasks = 30"
    assert verify(30, ROWS) == tasks
    assert "of another run" in store.verify({"rows": ["0123", "undo-0000000000-4567"]})
    assert "cannot go back so far" in store.verify({"rows": [notes["rows"][0], "undo"]})
    (store.folder / "rows").write_bytes(b"short")
    assert store.verify(notes).endswith(f"bytes = 5; this run needs bytes = {20 * 24}")
    (store.folder / "about.json").unlink()
    assert store.verify(notes) == f"{store.folder} holds no memories (about.json)"
    with pytest.raises(ConfigError, match="holds other files"):
        store.create()


def of_run(store, owner):
    return closing(RowsOnDisk(store.folder, owner, 20, layout_of(ROWS)))


def test_a_store_that_is_open_is_in_use(store, tmp_path):
    store.create()
    notes = store.saving(0)
    with of_run(store, tmp_path) as other:
        for use in (other.create, lambda: other.verify(notes), lambda: other.forget([3])):
            with pytest.raises(ConfigError, match=f"{store.folder} is in use by process"):
                use()
        with pytest.raises(ConfigError, match="is in use by process"):
            other.back_to(0)
        store.close()
        other.back_to(0)
        with pytest.raises(ConfigError, match="is in use by process"):
            store.verify(notes)


def test_a_run_and_its_copy_each_go_back_by_their_own_logs_alone(tmp_path, caplog):
    chance, one, two = np.random.default_rng(3), tmp_path / "one", tmp_path / "two"
    with closing(RowsOnDisk(tmp_path / "rows", one, 20, layout_of(ROWS))) as store:
        store.create()
        write(store, chance)
        first = store.saving(1)
        at_first = store.read(EVERYONE)
        write(store, chance)
        mine = store.saving(2, [1])
    with of_run(store, two) as copied:
        assert copied.verify(first) is None
        copied.back_to(1)
        assert f"were those of {one}; now {two} goes on with them" in caplog.text
        write(copied, chance)
        theirs = copied.saving(2, [1])
        write(copied, chance)
    with of_run(store, one) as again:
        assert again.verify(mine) == (
            f"the memories in {store.folder} cannot go back so far ({two} had them last)"
        )
        assert again.verify(first) is None
        again.back_to(1)
        np.testing.assert_array_equal(again.read(EVERYONE), at_first)
        assert "cannot go back so far" in again.verify(theirs)
    with (
        of_run(store, two) as copied,
        pytest.raises(ConfigError, match=f"holds the memories of {one}: give another folder"),
    ):
        copied.create()


def test_stopped_while_it_goes_back_it_can_go_back_again(store, monkeypatch):
    chance, notes, at = np.random.default_rng(4), [], []
    store.create()
    for step in range(4):
        notes.append(store.saving(step, [0]))
        at.append(store.read(EVERYONE))
        write(store, chance)
    store.close()

    def stop(*_):
        raise OSError(28, "No space left on device")

    for part, left in (("sync_folder", [0, 1, 2]), ("Undo", [0, 1])):
        with monkeypatch.context() as patch:
            patch.setattr(rows_on_disk, part, stop)
            with pytest.raises(CheckpointError, match=r"the memories in .*: no space left on"):
                store.back_to(1)
        store.close()
        assert steps(store) == left
    for step in (1, 0):
        assert store.verify(notes[step]) is None
        store.back_to(step)
        np.testing.assert_array_equal(store.read(EVERYONE), at[step])
        store.close()


def test_where_no_log_can_be_begun_or_removed_it_is_said(store, monkeypatch):
    store.create()
    store.saving(1)

    def stop(*_, **__):
        raise OSError(28, "No space left on device")

    said = r"cannot write the memories in .*: no space left on device"
    with monkeypatch.context() as patch:
        patch.setattr(rows_on_disk.Path, "unlink", stop)
        with pytest.raises(CheckpointError, match=said):
            store.saving(2, [2])
    with monkeypatch.context() as patch:
        patch.setattr(rows_on_disk, "Undo", stop)
        with pytest.raises(CheckpointError, match=said):
            store.saving(3)
    store.close()  # what was closed is not closed again


def saved(store, chance, count=3):
    """Notes and rows of some checkpoints; each log but the last has entries."""
    store.create()
    store.write(EVERYONE, rows_of(store, EVERYONE, chance), store.read(EVERYONE))
    notes, at = [], []
    for step in range(count):
        notes.append(store.saving(step, [0]))
        at.append(store.read(EVERYONE))
        if step < count - 1:
            write(store, chance)
    store.close()
    return notes, at


def test_a_log_in_the_place_of_another_is_refused(store):
    notes, _ = saved(store, np.random.default_rng(6))
    one, two, last = (log_of(store, step) for step in range(3))
    for a, b, step in ((one, two, 0), (one, last, 2), (two, last, 1)):
        before = a.read_bytes(), b.read_bytes()
        a.write_bytes(before[1])
        b.write_bytes(before[0])
        assert "is damaged" in store.verify(notes[step])
        with pytest.raises(CheckpointError, match="is damaged at byte 0"):
            store.forget([3])
        for path, data in zip((a, b), before, strict=True):
            path.write_bytes(data)
    assert [store.verify(each) for each in notes] == [None] * 3


def test_a_log_that_another_follows_is_neither_cut_off_nor_missing(store):
    notes, at = saved(store, np.random.default_rng(7))
    one, two, last = (log_of(store, step) for step in range(3))
    data, size = one.read_bytes(), WORD + store.layout.stride
    for end in (0, size, 5 * size + 3, 6 * size):  # the seventh entry names the next log
        for cut in (data[:end], data[:end] + bytes(len(data) - end)):
            one.write_bytes(cut)
            assert store.verify(notes[0]).startswith(f"{one} is damaged")
            assert store.verify(notes[1]) is None
    one.write_bytes(data)
    for path, before, step in ((two, one, 0), (last, two, 1)):
        content = path.read_bytes()
        path.unlink()
        assert store.verify(notes[step]) == f"the log that follows {before} is missing"
        path.write_bytes(content)
    store.forget([3])  # writes the logs again
    store.back_to(0)
    after = store.read(EVERYONE)
    assert not after[3].any()
    np.testing.assert_array_equal(np.delete(after, 3, 0), np.delete(at[0], 3, 0))


def test_killed_before_a_log_names_the_next_it_can_go_back(store, monkeypatch):
    chance = np.random.default_rng(8)
    notes, at = saved(store, chance, 1)
    store.back_to(0)
    write(store, chance)

    def killed(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(rows_on_disk.Undo, "end", killed)
        with pytest.raises(CheckpointError, match="no space left"):
            store.saving(1, [0])
    store.close()
    assert steps(store) == [0, 1]
    assert store.verify(notes[0]) is None
    store.back_to(0)
    np.testing.assert_array_equal(store.read(EVERYONE), at[0])


def test_rows_of_another_task_or_of_another_store_are_refused(store, tmp_path):
    chance, stride = np.random.default_rng(9), store.layout.stride
    with closing(RowsOnDisk(tmp_path / "other", tmp_path, 20, store.layout)) as other:
        for each in (store, other):
            each.create()
            each.write(EVERYONE, rows_of(each, EVERYONE, chance), each.read(EVERYONE))
    path = store.folder / "rows"
    data = path.read_bytes()
    path.write_bytes(data[stride : 2 * stride] + data[:stride] + data[2 * stride :])
    with pytest.raises(CheckpointError, match="the row of task 0 has another checksum"):
        store.read(EVERYONE)
    path.write_bytes((other.folder / "rows").read_bytes())
    with pytest.raises(CheckpointError, match="the row of task 0 has another checksum"):
        store.read(EVERYONE)
