import json

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moml.errors import CheckpointError, ConfigError, DataError
from moml.storage import metrics
from moml.storage.metrics import FIELDS, Mark, Metrics


def row(step=1, **given):
    usual = {"iterations": 2 * step, "samples": 10 * step, "loss": 0.1 * step, "norm": 1.0}
    return {"step": step, **usual, "score": None} | given


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_rows_come_back_as_they_were(path):
    rows = [row(1), row(2, loss=5e-324, norm=float(np.float32(0.1)), score=-0.0)]
    with Metrics(path) as file:
        for one in rows:
            file.write(one)
    assert metrics.read(path) == rows
    assert [tuple(one) for one in metrics.read(path)] == [FIELDS] * 2
    assert path.read_text().count("\n") == 2 and " " not in path.read_text()


@given(st.lists(st.floats(), min_size=1, max_size=4))
def test_every_float_keeps_its_bits_or_is_null(values):
    told = json.loads(json.dumps(metrics.plain(values), allow_nan=False))
    for value, back in zip(values, told, strict=True):
        assert (
            back is None
            if not np.isfinite(value)
            else np.float64(back).tobytes() == (np.float64(value).tobytes())
        )


def test_arrays_and_what_is_not_finite(path):
    with Metrics(path) as file:
        file.write(row(np.int64(3), loss=jnp.array([1.5, jnp.nan, -jnp.inf]), score=[None, 1, 2]))
        file.write(row(4, loss=jnp.float32(0.1), norm=float("inf")))
    first, second = metrics.read(path)
    assert first["loss"] == [1.5, None, None] and first["score"] == [None, 1.0, 2.0]
    assert np.float32(second["loss"]) == np.float32(0.1) and second["norm"] is None


@pytest.mark.parametrize("change", [{"seconds": 1.0}, {"loss": ...}])
def test_one_schema(path, change):
    wrong = {name: value for name, value in (row() | change).items() if value is not ...}
    with Metrics(path) as file, pytest.raises(DataError, match=r"have step, .* score; got step,"):
        file.write(wrong)
    assert path.read_bytes() == b""


def test_a_torn_line_is_left_out_and_cut_off_on_going_on(path):
    with Metrics(path) as file:
        file.write(row(1))
        mark = file.sync()
        file.write(row(2, score=[1.0, None]))
        file.write(row(3))
        end = file.sync()
    whole = path.read_bytes()
    assert end.offset == len(whole)
    for length in range(mark.offset, len(whole)):
        path.write_bytes(whole[:length])
        assert len(metrics.read(path)) == whole[:length].count(b"\n")
        with Metrics(path, mark) as file:
            assert file.sync() == mark
            file.write(row(2, score=[1.0, None]))
            file.write(row(3))
            assert file.sync() == end
        assert path.read_bytes() == whole


def test_what_was_cut_or_changed_before_the_mark_is_noticed(path):
    with Metrics(path) as file:
        file.write(row(1))
        mark = file.sync()
        file.write(row(2))
    whole = path.read_bytes()
    assert metrics.verify(path, mark) is None and metrics.verify(path, metrics.START) is None
    for place in range(mark.offset):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert "was changed" in metrics.verify(path, mark)
    path.write_bytes(whole[: mark.offset - 1])
    with pytest.raises(CheckpointError, match=f"fewer than the {mark.offset} of the checkpoint"):
        Metrics(path, mark)
    assert path.read_bytes() == whole[: mark.offset - 1]
    path.unlink()
    assert "cannot be read: No such file" in metrics.verify(path, mark)
    assert Mark(**json.loads(json.dumps(mark._asdict()))) == mark


def test_a_new_run_starts_from_nothing(path):
    path.write_text("old\n")
    with Metrics(path) as file:
        assert file.sync() == metrics.START
    assert path.read_bytes() == b""


def test_errors_say_where(path, tmp_path):
    with pytest.raises(DataError, match=r"cannot read metrics from .*jsonl: No such file"):
        metrics.read(path)
    path.write_text('{"step":1}\n{"st\n{"step":3}\n')
    with pytest.raises(DataError, match=r"line 2 of .*jsonl is not JSON"):
        metrics.read(path)
    with pytest.raises(ConfigError, match=r"cannot write .*: No such file"):
        Metrics(tmp_path / "no" / "folder")


def test_a_full_disk_is_told(path):
    with Metrics(path) as file, open("/dev/full", "wb", buffering=0) as full:
        file._file, mine = full, file._file
        with pytest.raises(ConfigError, match=r"metrics.jsonl: no space left on device"):
            file.write(row())
        file._file = mine
