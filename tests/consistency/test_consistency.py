"""Short runs with fixed seeds end as they did when they were recorded.

On the machine that made the record all bytes are equal, which `record.py --compare` shows. Another
processor may sum in another order, and training carries that on: so values are held to RTOL here,
and dtypes, shapes, whole numbers, texts and what is not a number exactly. Compiled for AVX instead
of AVX-512 the runs come to 4e-5. Small numbers count as a tenth of the largest of their array,
as v2's memories are small differences of large numbers.
"""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import moml
from tests.consistency.record import HERE, difference, read

RTOL = 1e-4
TOLD = json.loads((HERE / "rows.json").read_text())
NO_DATA = pytest.mark.skipif(not os.environ.get("MOML_DATA"), reason="MOML_DATA is not set")
ENTRIES = [
    pytest.param(entry, marks=NO_DATA if "cifar" in entry else ())
    for entry in TOLD["rows"] | TOLD["arrays"]
]


@pytest.fixture(scope="session")
def stored():
    return read(HERE)


@pytest.fixture(scope="session")
def again(tmp_path_factory):
    """The same runs now, made once, whichever of pytest's processes comes first."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    out = base / "consistency"
    with (base / "consistency.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "rows.json").exists():
            # record.py runs everything without XLA_FLAGS and JAX_*, which conftest sets
            ours = os.environ | {"PYTHONPATH": str(Path(moml.__file__).parents[1])}
            command = [sys.executable, HERE / "record.py", "--out", out]
            done = subprocess.run(command, env=ours, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return read(out)


@pytest.mark.parametrize("entry", ENTRIES)
def test_as_recorded(entry, stored, again):
    assert entry in again, "nothing of that name is recorded any more"
    _, far, why = difference(stored[entry], again[entry])
    assert not why, why
    assert far <= RTOL


def test_nothing_is_new(stored, again):
    assert not set(again) - set(stored)
