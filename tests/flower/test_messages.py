"""What travels: w, and a few numbers with fixed names. Every message of a run is looked at."""

import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from moml.flower.app.client_app import app
from moml.flower.app.learning import server_of
from moml.flower.app.records import arrays_of
from tests.flower.common import federated, model, nodes, serve, settings, small
from tests.flower.grid import InProcess

CONFIG = small()
TOLD = {"num-examples", "loss", "before", "after"}


def is_w(record):
    like = arrays_of(server_of(CONFIG).meta)
    assert list(record) == list(like)
    for name, array in record.items():
        assert (array.shape, array.dtype) == (like[name].shape, like[name].dtype)
        assert len(array.data) == len(like[name].data)


@pytest.mark.parametrize("privacy", ["", "client", "local"])
def test_every_message_of_a_run(privacy, tmp_path):
    _, _, grid = federated(CONFIG, tmp_path, privacy=privacy)
    kinds = {"query": 0, "train": 0}
    for message in grid.seen:
        kind = message.metadata.message_type.split(".")[0]
        kinds[kind] += 1
        content, out = message.content, message.metadata.src_node_id == 1
        if kind == "query" and out:
            assert not content
        elif kind == "query":
            assert set(content) == {"metrics"}
            assert set(content["metrics"]) == {"partition-id", "num-partitions"}
        elif out:
            assert set(content) == {"arrays", "config"}
            is_w(content["arrays"])
            names = {"server-round", "run", "tasks", "heard"}
            assert set(content["config"]) - {"clipping_norm"} == names
        else:
            assert set(content) == {"arrays", "metrics"}
            is_w(content["arrays"])
            assert set(content["metrics"]) == TOLD
            numbers = content["metrics"].values()
            assert all(isinstance(x, int | float) and math.isfinite(x) for x in numbers)
    per_round = 4 if privacy else 3  # a task each, or a node each
    assert kinds == {"query": 6, "train": 2 * 3 * per_round}


def test_an_error_leaves_as_its_kind_alone(tmp_path):
    secret = tmp_path / "secret-patient-7"
    secret.write_text("not a folder")
    run = settings(CONFIG, tmp_path / "out", rounds=1)
    there = nodes(3)
    there[101]["state-dir"] = str(secret)
    grid = InProcess(run, there)
    _, rows = serve(grid, run)
    (bad,) = (message for message in grid.seen if message.has_error())
    assert not bad.has_content() and "secret" not in repr(bad.error)
    assert bad.error.reason == "ConfigError; the node's log says more"
    assert rows[0]["failed"][0]["partition"] == 1 and "secret" not in str(rows)


def changed(reply, arrays=None, metrics=None):
    content = RecordDict(dict(reply.content))
    if arrays is not None:
        old = reply.content["arrays"].to_numpy_ndarrays()
        content["arrays"] = ArrayRecord(
            arrays(dict(zip(reply.content["arrays"], old, strict=True)))
        )
    if metrics is not None:
        content["metrics"] = MetricRecord(metrics(dict(reply.content["metrics"])))
    reply.content = content
    return reply


def first(change):
    def alter(arrays):
        name = next(iter(arrays))
        return {n: Array(change(a) if n == name else a) for n, a in arrays.items()}

    return lambda reply: changed(reply, arrays=alter)


def renamed(reply):
    return changed(reply, arrays=lambda all_: {n + "!": Array(a) for n, a in all_.items()})


def lying(reply):
    """An array that says it has the right shape, and holds another."""
    record = reply.content["arrays"]
    name = next(iter(record))
    other = Array(np.zeros(5))
    record[name] = Array(record[name].dtype, record[name].shape, other.stype, other.data)
    return reply


def scrap(reply):
    record = reply.content["arrays"]
    name = next(iter(record))
    record[name] = Array(record[name].dtype, record[name].shape, record[name].stype, b"scrap")
    return reply


def more_records(reply):
    reply.content["rows"] = MetricRecord({"x": 1})
    return reply


BAD = {
    "nan": (first(lambda a: np.full_like(a, np.nan)), "not finite"),
    "shape": (first(lambda a: np.zeros((*a.shape, 2), a.dtype)), "is not float64"),
    "type": (first(lambda a: a.astype(np.float32)), "is not float64"),
    "names": (renamed, "other names"),
    "lie": (lying, "as it says"),
    "scrap": (scrap, "cannot be read"),
    "records": (more_records, "records are not"),
    "metrics": (lambda r: changed(r, metrics=lambda m: m | {"more": 1}), "metrics are not"),
    "fewer": (lambda r: changed(r, metrics=lambda m: {"loss": m["loss"]}), "metrics are not"),
    "loss": (lambda r: changed(r, metrics=lambda m: m | {"loss": math.nan}), "finite numbers"),
    "list": (lambda r: changed(r, metrics=lambda m: m | {"loss": [1.0]}), "finite numbers"),
    "weight": (
        lambda r: changed(r, metrics=lambda m: m | {"num-examples": 10**9}),
        "counts itself",
    ),
    "silence": (lambda r: None, "no answer within 0.2 s"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_left_out_and_named(name, tmp_path):
    spoil, word = BAD[name]

    def client(message, context):
        reply = app(message, context)
        bad = context.node_id == 101 and message.metadata.message_type == "train"
        return spoil(reply) if bad else reply

    config = small(tasks_per_step=6)
    more = {"rounds": 2, "timeout": 0.2} if name == "silence" else {"rounds": 2}
    w, rows, _ = federated(config, tmp_path / name, app=client, **more)
    for row in rows:
        ((partition, tasks, reason),) = (each.values() for each in row["failed"])
        assert (partition, tasks) == (1, [1, 4]) and word in reason
        assert row["answered"] == 4
    without = tmp_path / "without"
    run = settings(config, without, rounds=2)
    serve(InProcess(run, {i: node for i, node in nodes(3).items() if i != 101}), run)
    expected = model(small(tasks_per_step=6), without)
    assert all(np.array_equal(a, b) for a, b in zip(w, expected, strict=True))


def test_where_nobody_answers_the_model_stays(tmp_path):
    silent = lambda message, context: (
        app(message, context) if message.metadata.message_type == "query" else Message(
            RecordDict(), reply_to=message
        )
    )  # fmt: skip
    w, rows, _ = federated(CONFIG, tmp_path, app=silent, rounds=1)
    begin = [np.asarray(leaf) for leaf in arrays_of(server_of(CONFIG).meta).to_numpy_ndarrays()]
    assert all(np.array_equal(a, b) for a, b in zip(w, begin, strict=True))
    assert rows[0]["answered"] == 0 and rows[0]["loss"] is None and not rows[0]["released"]
