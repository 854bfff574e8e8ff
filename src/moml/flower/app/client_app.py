"""Flower's client app: a node does its tasks' part of a round, and sends the mean of their models.

What leaves it is that mean and the numbers of `records.SENT`. Of an error only the class leaves:
its message might quote data, and goes to the node's log.
"""

import logging
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from jaxtyping import PyTree

from moml.config.plugins import import_plugins
from moml.errors import ConfigError, DataError
from moml.flower.app.learning import Client, Outcome, client_of
from moml.flower.app.records import ARRAYS, CONFIG, COUNT, METRICS, SENT, arrays_of, tree_of
from moml.flower.app.settings import Node, Settings, node_of, read
from moml.flower.app.state import Place, keep, recall
from moml.runtime import compile_cache
from moml.types import Record

FAILED = 2  # Flower's code of a client app that raised
app = ClientApp()
log = logging.getLogger("moml")
if _wrong := compile_cache.start():
    log.warning("%s", _wrong)
Handler = Callable[[Message, Context], Message]


def mute(message: Message, context: Context, call_next: Handler) -> Message:
    """Write any error to this node's log, and send its class to the server."""
    try:
        return call_next(message, context)
    except Exception as error:
        log.exception("a message of type %s failed", message.metadata.message_type)
        reason = f"{type(error).__name__}; the node's log says more"
        return Message(Error(FAILED, reason), reply_to=message)


def settings_of(context: Context) -> tuple[Settings, Node]:
    """The settings of the run and of this node, which imports the plugins of its own settings."""
    node = node_of(context.node_config)
    import_plugins(node.plugins)
    return read(context.run_config), node


def noised(message: Message, context: Context, call_next: Handler) -> Message:
    """Apply Flower's local differential privacy, with the numbers of this run."""
    privacy = settings_of(context)[0].privacy
    if privacy is None:
        raise ConfigError("this run has no privacy")
    # Two updates of norm C differ by 2 C at most; Flower's noise is sensitivity times this factor.
    factor = math.sqrt(2 * math.log(1.25 / privacy.delta))
    epsilon = factor / privacy.noise_multiplier
    mod = LocalDpMod(privacy.clipping_norm, 2 * privacy.clipping_norm, epsilon, privacy.delta)
    return mod(message, context, call_next)


@app.query(mods=[mute])
def holds(message: Message, context: Context) -> Message:
    """Return the partition of this node."""
    node = node_of(context.node_config)
    metrics = MetricRecord({"partition-id": node.partition, "num-partitions": node.partitions})
    return Message(RecordDict({METRICS: metrics}), reply_to=message)


def train(message: Message, context: Context) -> Message:
    """Do a node's part of a round."""
    settings, node = settings_of(context)
    if message.metadata.message_type != settings.action:
        raise ConfigError(f"asked by {message.metadata.message_type}, not {settings.action}")
    asked: Record = dict(message.content.config_records[CONFIG])
    keep_compiled(node)
    client = client_of(settings.config, node)
    sent = tree_of(message.content.array_records[ARRAYS], client.message)
    number, run = int(asked["server-round"]) - 1, str(asked["run"])
    if not run.isalnum():  # it becomes part of a file's name
        raise ConfigError("the run's token must be letters and digits")
    done = []
    for task, heard in zip(asked["tasks"], asked["heard"], strict=True):
        if task % node.partitions != node.partition:
            raise ConfigError(f"task {task} is not of partition {node.partition} here")
        place = Place(context.state, node.state, settings.experiment, run, task)
        done.append(one(client, place, sent, number, heard))
    weights = [int(each.weight) for each in done]
    mean = lambda *x: sum(p * np.asarray(x) for p, x in zip(weights, x, strict=True)) / sum(weights)
    metrics = MetricRecord({COUNT: sum(weights)})
    for name in SENT[1:]:
        metrics[name] = float(mean(*(getattr(each, name) for each in done)))
    model = jax.tree.map(mean, *(each.sent for each in done))  # sum p_i w_i / sum p_i
    content = RecordDict({ARRAYS: arrays_of(model), METRICS: metrics})
    return Message(content, reply_to=message)


def one(client: Client, place: Place, sent: PyTree, number: int, heard: int) -> Outcome:
    """Do one task's round: its row is recalled before and kept after."""
    row = client.row(sent)
    if jax.tree.leaves(row) and heard >= 0:
        found = recall(place, heard, row)
        row = row if found is None else found
    done = client.round(sent, row, number, place.task)
    if not done.drawn:
        raise DataError(f"task {place.task} is not of round {number + 1}: other settings there?")
    if jax.tree.leaves(row):
        keep(place, heard, number, done.row)
    return done


app.train(mods=[mute])(train)
app.train("clipped", mods=[mute, fixedclipping_mod])(train)
app.train("noised", mods=[mute, noised])(train)


def keep_compiled(node: Node) -> None:
    """Keep compiled programs on disk, as a client process lives for one message only."""
    config: Any = jax.config
    if node.state is None or config.jax_compilation_cache_dir is not None:
        return
    config.update("jax_compilation_cache_dir", str(node.state / "compiled"))
    config.update("jax_persistent_cache_min_compile_time_secs", 0)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)
