import os
import pickle
import warnings
from collections import OrderedDict
from pathlib import PurePosixPath

import numpy as np
import pytest

from moml.data.images.pickles import loads
from moml.errors import DataError
from tests.data import made

BATCH = {b"data": np.arange(12, dtype=np.uint8).reshape(2, 6), b"labels": [3, 1], b"name": b"a"}


def test_what_python_2_wrote():
    found = loads(made.python2(BATCH), "batch")
    assert list(found) == ["data", "labels", "name"]
    np.testing.assert_array_equal(found["data"], BATCH[b"data"])
    assert found["data"].dtype == np.uint8
    assert found["labels"] == [3, 1] and found["name"] == b"a"


def test_the_maker_is_true_to_the_format():
    with warnings.catch_warnings():  # some numpy 2.4 dislike how old pickles ask for u1
        warnings.simplefilter("ignore")
        found = pickle.loads(made.python2(BATCH), encoding="bytes")
    np.testing.assert_array_equal(found[b"data"], BATCH[b"data"])


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", ["u1", "<i4", ">i8", "i2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_others_packed_again(protocol, kind, order):
    array = np.arange(12, dtype=kind).reshape(3, 4, order=order)
    raw = pickle.dumps({"data": array, "raw": b"\x80x", "labels": [1]}, protocol)
    found = loads(raw, "batch")
    np.testing.assert_array_equal(found["data"], array)
    assert found["raw"] == b"\x80x" and found["labels"] == [1]


class Evil:
    def __init__(self, call, *arguments):
        self.way = (call, arguments)

    def __reduce__(self):
        return self.way


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "call, argument, name",
    [
        (os.system, "touch {}", "system"),
        (eval, "open({!r}, 'w')", "eval"),
        (exec, "open({!r}, 'w')", "exec"),
        (np.load, "{}", "load"),
        (PurePosixPath, "{}", "PurePosixPath"),
        (OrderedDict, "", "OrderedDict"),
        (getattr, "{}", "getattr"),
    ],
)
def test_a_pickle_that_asks_for_more_is_refused_by_name(tmp_path, protocol, call, argument, name):
    trace = tmp_path / "trace"
    words = argument.format(str(trace)) if argument else []
    raw = pickle.dumps({"data": Evil(call, words)}, protocol)
    with pytest.raises(DataError, match=rf"batch is refused: .* asks for \S*{name};"):
        loads(raw, "batch")
    assert not trace.exists()


@pytest.mark.parametrize(
    "raw, words",
    [
        (b"\x80\x02cnumpy\nndarray\n}X\x01\x00\x00\x00aK\x01sb.", "missing"),
        (b"\x80\x02c_codecs\nencode\n}X\x01\x00\x00\x00aK\x01sb.", "dict; got a function"),
        (
            b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00utf-7\x86R.",
            "got a bytes",
        ),
        (b"\x80\x02cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R.", "type 'O'"),
        (b"\x80\x02]q\x01.", "must hold a dict; got a list"),
        (b"\x80\x02P1\n.", "persistent"),
        (b"", "exhausted before seeing STOP"),
        (b"garbage", "not a pickled batch"),
        (made.python2(BATCH)[:-20], "not a pickled batch"),
        (made.python2(BATCH).replace(b"K\x01(J\x02", b"K\x01(J\x03"), "reshape"),
    ],
)
def test_tricks_and_damage(raw, words):
    with pytest.raises(DataError, match=words) as raised:
        loads(raw, "folder/batch")
    assert str(raised.value).startswith("folder/batch")
    assert loads(made.python2(BATCH), "batch")["labels"] == [3, 1]  # and no trace is left
