"""Flower's client app: a node does its tasks' part of a round, and sends the mean of their models.

What leaves it is that mean and the numbers of `records.TOLD`. An error leaves as its kind alone:
words might quote data, so they go to the node's log.
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

from moml.errors import ConfigError, DataError
from moml.flower.app.learning import Client, Outcome, client_of
from moml.flower.app.records import ARRAYS, CONFIG, COUNT, METRICS, TOLD, arrays_of, tree_of
from moml.flower.app.settings import Node, node_of, read
from moml.flower.app.state import Place, keep, recall

FAILED = 2  # Flower's code of a client app that raised
app = ClientApp()
log = logging.getLogger("moml")
Handler = Callable[[Message, Context], Message]


def mute(message: Message, context: Context, call_next: Handler) -> Message:
    """Whatever is raised goes to this node's log, and its kind to the server."""
    try:
        return call_next(message, context)
    except Exception as error:
        log.exception("a message of type %s failed", message.metadata.message_type)
        reason = f"{type(error).__name__}; the node's log says more"
        return Message(Error(FAILED, reason), reply_to=message)


def noised(message: Message, context: Context, call_next: Handler) -> Message:
    """Local differential privacy: Flower's own, with the numbers of this run."""
    told = read(context.run_config).privacy
    if told is None:
        raise ConfigError("this run has no privacy")
    # Two updates of norm C differ by 2 C at most; Flower's noise is sensitivity times this factor.
    factor = math.sqrt(2 * math.log(1.25 / told.delta))
    epsilon = factor / told.noise_multiplier
    mod = LocalDpMod(told.clipping_norm, 2 * told.clipping_norm, epsilon, told.delta)
    return mod(message, context, call_next)


@app.query(mods=[mute])
def holds(message: Message, context: Context) -> Message:
    """Which partition this node holds."""
    node = node_of(context.node_config)
    told = MetricRecord({"partition-id": node.partition, "num-partitions": node.partitions})
    return Message(RecordDict({METRICS: told}), reply_to=message)


def train(message: Message, context: Context) -> Message:
    """A node's part of a round."""
    settings, node = read(context.run_config), node_of(context.node_config)
    if message.metadata.message_type != settings.action:
        raise ConfigError(f"asked by {message.metadata.message_type}, not {settings.action}")
    asked: Any = message.content[CONFIG]
    keep_compiled(node)
    client = client_of(settings.config, node)
    meta = tree_of(message.content.array_records[ARRAYS], client.meta)
    number, run = int(asked["server-round"]) - 1, str(asked["run"])
    if not run.isalnum():  # it becomes part of a file's name
        raise ConfigError("the run's token must be letters and digits")
    done = []
    for task, heard in zip(asked["tasks"], asked["heard"], strict=True):
        if task % node.partitions != node.partition:
            raise ConfigError(f"task {task} is not of partition {node.partition} here")
        place = Place(context.state, node.state, settings.experiment, run, task)
        done.append(one(client, place, meta, number, heard))
    weights = [int(each.weight) for each in done]
    mean = lambda *x: sum(p * np.asarray(x) for p, x in zip(weights, x, strict=True)) / sum(weights)
    told: dict[str, Any] = {
        name: float(mean(*(getattr(each, name) for each in done))) for name in TOLD[1:]
    }
    model = jax.tree.map(mean, *(each.meta for each in done))  # sum p_i w_i / sum p_i
    metrics = MetricRecord({COUNT: sum(weights)} | told)
    content = RecordDict({ARRAYS: arrays_of(model), METRICS: metrics})
    return Message(content, reply_to=message)


def one(client: Client, place: Place, meta: Any, number: int, heard: int) -> Outcome:
    """One task's round: its row is recalled before and kept after."""
    row = client.row(meta)
    if jax.tree.leaves(row) and heard >= 0:
        found = recall(place, heard, row)
        row = row if found is None else found
    done = client.round(meta, row, number, place.task)
    if not done.drawn:
        raise DataError(f"task {place.task} is not of round {number + 1}: other settings there?")
    if jax.tree.leaves(row):
        keep(place, heard, number, done.row)
    return done


app.train(mods=[mute])(train)
app.train("clipped", mods=[mute, fixedclipping_mod])(train)
app.train("noised", mods=[mute, noised])(train)


def keep_compiled(node: Node) -> None:
    """A client process lives for one message: what it compiles is kept for the next."""
    config: Any = jax.config
    if node.state is None or config.jax_compilation_cache_dir is not None:
        return
    config.update("jax_compilation_cache_dir", str(node.state / "compiled"))
    config.update("jax_persistent_cache_min_compile_time_secs", 0)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)
