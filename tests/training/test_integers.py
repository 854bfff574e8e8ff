"""Integers are exact or refused, in every door that takes users' numbers."""

import datetime
import decimal

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import moml
from moml.data import as_table, learn_columns, read_table, write_table
from moml.data.exact import exact
from moml.data.table.groups import group
from moml.errors import DataError
from moml.tabular.estimator import MomlClassifier
from moml.tabular.predict import labelled
from moml.tasks import from_groups
from moml.types import Batch, Tasks

NOW = 1_700_000_000_000  # milliseconds since 1970
LARGE = 2**53 + 1  # the first that no double holds
SAID = f"= {NOW} does not fit int32; enable x64"


@pytest.fixture
def narrow():
    with jax.enable_x64(False):
        yield


def placed(shape, at, value=NOW, dtype=np.int64):
    array = np.zeros(shape, dtype)
    array[at] = value
    return array


def drawn(index, key, ids, size):
    return jnp.zeros((len(ids), size), jnp.int32)


def fetched(data, ids, rows):
    return Batch(data[rows], data[rows])


@pytest.mark.parametrize(
    ("place", "door"),
    {
        "x[1, 2, 0]": lambda: moml.from_arrays(placed((2, 3, 1), (1, 2, 0)), np.zeros((2, 3))),
        "y[0, 1]": lambda: moml.from_arrays(np.zeros((2, 3, 1)), placed((2, 3), (0, 1))),
        "x[0, 0]": lambda: moml.from_arrays([np.array([NOW, 1])], np.zeros((1, 2))),
        "y[1, 0]": lambda: moml.from_arrays(np.zeros((2, 1)), [[0], [NOW]]),
        "x[3]": lambda: moml.from_rows(placed(4, 3), np.zeros(4), [[0, 1], [2, 3]]),
        "y[2, 0]": lambda: moml.from_rows(np.zeros(4), placed((4, 1), 2), [[0, 1], [2, 3]]),
        "x[1]": lambda: from_groups(placed(3, 1), np.zeros(3), [[0, 1], [2]], shots=1),
        "y[2]": lambda: from_groups(np.zeros(3), placed(3, 2), [[0, 1], [2]], shots=1),
        "table[0, 1]": lambda: moml.episodes(
            np.zeros((3, 2, 2, 2, 1), np.uint8), 2, placed((1, 2), (0, 1))
        ),
        "tasks.data[4]": lambda: moml.fit(
            "maml", moml.mse(lambda w, x: w * x), 1.0, Tasks(1, drawn, fetched, data=placed(9, 4))
        ),
        "y[1]": lambda: moml.mse(lambda w, x: w * x)(1.0, Batch(jnp.zeros(2), placed(2, 1))),
    }.items(),
)  # fmt: skip
def test_an_integer_that_jax_would_change_is_refused_with_its_place(narrow, place, door):
    with pytest.raises(DataError) as error:
        door()
    assert f"{place} {SAID}" in str(error.value)


def test_a_support_and_scored_tasks_are_checked(narrow):
    net = moml.mlp(1, 4, 1)
    loss, w = moml.mse(net.predict), net.init(jax.random.key(0))
    learner = moml.fit("maml", loss, w, moml.sine(), iterations=2)
    with pytest.raises(DataError, match=r"support\.y\[0, 0\] = 1700000000000 does not fit int32"):
        learner.adapt(Batch(np.zeros((1, 1), np.float32), np.array([[NOW]])))
    with pytest.raises(DataError, match="support"):
        learner.adapt(Batch(jnp.zeros((1, 1)), [[NOW]]))
    wrong = Tasks(2, drawn, fetched, data=placed(9, 4))
    with pytest.raises(DataError, match=r"tasks\.data\[4\] = 1700000000000"):
        moml.evaluate(learner, loss, wrong, shots=1)


def test_what_jax_holds_stays_exact(narrow):
    for values in (np.array([[2**31 - 1, -(2**31)]]), np.array([[2**32 - 1, 0]], np.uint64)):
        tasks = moml.from_arrays(np.zeros((1, 2)), values)
        assert np.asarray(tasks.data[1]).tolist() == values.tolist()
    with jax.enable_x64(True):
        tasks = moml.from_arrays(np.zeros((1, 2)), [[NOW, LARGE]])
        assert tasks.data[1].tolist() == [[NOW, LARGE]]
    assert float(moml.from_arrays(np.full((1, 1), 1.7e12), np.zeros((1, 1))).data[0][0, 0]) > 1e12


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([2**63, -1], r"x\[0\] = 9223372036854775808 does not fit 64-bit integers"),
        ([1, 2**70], r"x\[1\] = 1180591620717411303424 does not fit 64-bit integers"),
        (np.array([2**40], np.uint64), r"x\[0\] = 1099511627776 does not fit uint32"),
        ([np.array([2**63], np.uint64), np.array([-1])], r"x\[0, 0\] = 9223372036854775808 "),
        (np.array(["2024-01-01"], "M8[ms]"), r"must be an array of numbers; got type datetime64"),
        (np.array([1, "a"], object), r"must be an array of numbers; got type object with 1"),
        (np.array([[3, 4]], object), r"must be an array of numbers; got type object with 3"),
        ([[1], [2, 3]], "must be an array of numbers: "),
        (["a"], "must be an array of numbers; got type <U1 with 'a'"),
        (None, "must be an array of numbers; got type object with None"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(given, said):
    with pytest.raises(DataError, match=said):
        exact("x", given, bits=32)


def test_floats_among_large_integers_round():
    assert exact("x", [LARGE, 0.5], bits=32).dtype == float
    assert exact("x", [1e300, 2.0], bits=32).dtype == float


IDS = [LARGE, LARGE - 1, 2**64 - 1, LARGE]
TYPES = {
    "unsigned": pa.array(IDS, pa.uint64()),
    "decimal": pa.array(map(decimal.Decimal, IDS), pa.decimal128(20)),
    "decimal with places": pa.array(map(decimal.Decimal, IDS), pa.decimal128(24, 2)),
    "text": pa.array([str(value) for value in IDS]),
}  # fmt: skip


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize("kind", TYPES)
def test_ids_and_categories_are_exact_in_every_format(tmp_path, ending, kind):
    if ending == "csv" and kind.startswith("decimal"):
        kind = "text"
    path = tmp_path / f"ids.{ending}"
    write_table({"id": TYPES[kind], "x": [1.0, 2.0, 3.0, 4.0]}, path)
    table = read_table(path, text=["id"])
    assert group(table, "id").ids == tuple(map(str, IDS[:3]))


def test_ids_in_memory_are_exact():
    for ids in (IDS, [2**70, -1, 2**70 + 1, 2**70], np.array(IDS, np.uint64), TYPES["unsigned"]):
        table = as_table({"id": ids, "x": [1.0, 2.0, 3.0, 4.0]}, text=["id"])
        assert group(table, "id").ids == tuple(map(str, dict.fromkeys(np.array(ids, object))))
    with pytest.raises(DataError, match=r"column id\[0\] = 1180591620717411303424 does not fit"):
        as_table({"id": [2**70, 1]})


def test_ids_and_classes_as_large_floats_are_refused(tmp_path):
    message = r"column id: 9007199254740992.0 is a float too large for an id or a class"
    with pytest.raises(DataError, match=message):
        as_table({"id": [2.0**53, 1.0]}, text=["id"])
    table = as_table({"id": [None, LARGE, 1], "x": [1.0, 2.0, 3.0]})  # floats, where one is missing
    with pytest.raises(
        DataError, match="the table, column id, row 2: '9007199254740992' is a float"
    ):
        learn_columns(table, "id", classification=True)
    path = tmp_path / "t.csv"
    path.write_text(f"x,label\n1,{2**64 - 1}\n2,{2**64 - 2}\n3,5\n")  # beyond int64: read as floats
    with pytest.raises(DataError, match=f"{path}, column label, row 1: .* is a float too large"):
        learn_columns(read_table(path), "label", classification=True)


def test_times_as_ids_are_not_cut():
    day = datetime.datetime(2024, 1, 1)
    times = pa.array([day], pa.timestamp("us")).cast(pa.timestamp("ns")).cast(pa.int64())
    one, two = (pa.compute.add(times, n).cast(pa.timestamp("ns")) for n in (0, 1))
    assert as_table({"id": one}, text=["id"]).rows == 1
    with pytest.raises(DataError, match="would lose data"):
        as_table({"id": two}, text=["id"])


@pytest.mark.parametrize("labels", [[LARGE, LARGE + 1], [2**64 - 1, 5], [-LARGE, 3]])
def test_classes_that_are_large_integers_come_back_in_predictions(tmp_path, labels):
    path = tmp_path / "t.parquet"
    write_table({"x": [1.0, 2.0, 3.0], "label": exact("label", [*labels, labels[0]])}, path)
    columns = learn_columns(read_table(path), "label", classification=True)
    number = [sorted(labels).index(label) for label in (labels[0], labels[1], labels[0])]
    assert columns.target(read_table(path)).tolist() == number
    made = labelled(columns.target, np.eye(2)[number])
    assert made["prediction"].tolist() == [labels[0], labels[1], labels[0]]
    assert {f"probability_{label}" for label in labels} < set(made)
    write_table(made, tmp_path / "p.csv")
    assert str(labels[0]) in (tmp_path / "p.csv").read_text().splitlines()[1]


@pytest.mark.filterwarnings("ignore:fit without groups")
def test_the_classifier_keeps_large_classes():
    x = np.linspace(-1, 1, 24)[:, None]
    for labels in ([LARGE, LARGE + 1], [5, 2**64 - 1]):
        y = [labels[int(value > 0)] for value in x[:, 0]]
        made = MomlClassifier(iterations=20, members=1).fit(x, y)
        assert set(made.predict(x).tolist()) == set(labels)
    with pytest.raises(ValueError, match=r"y\[0\] = 9223372036854775808 does not fit"):
        made.fit(x, [2**63, -1] * 12)
