"""Records to pytrees and back, and checks of the records that clients send."""

import math
from collections.abc import Mapping

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from jaxtyping import PyTree

from moml.errors import one_line
from moml.storage.arrays import named_leaves
from moml.types import Meta

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
COUNT = "num-examples"  # the weight of a reply, by the name that Flower has for it
SENT = (COUNT, "loss", "before", "after")  # all that a client sends besides its model


def arrays_of(tree: PyTree) -> ArrayRecord:
    """Return the leaves of a tree by their paths, in order."""
    leaves = named_leaves(tree, "w")
    return ArrayRecord({name: Array(np.asarray(leaf)) for name, leaf in leaves.items()})


def tree_of(record: Mapping[str, Array], like: PyTree) -> PyTree:
    """Return a tree of the structure, shapes and dtypes of `like`, or raise ValueError."""
    names = named_leaves(like, "w")
    if list(record) != list(names):
        raise ValueError("its arrays have other names than the model's")
    leaves = []
    for name, leaf in names.items():
        given = record[name]
        if tuple(given.shape) != leaf.shape or given.dtype != str(leaf.dtype):
            raise ValueError(f"{name} is not {leaf.dtype}{list(leaf.shape)}")
        found = given.numpy()
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise ValueError(f"{name} is not {leaf.dtype}{list(leaf.shape)}, as it says")
        leaves.append(found)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def finite(tree: PyTree) -> bool:
    """Return whether every number of a tree is finite."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def problem_of(reply: Message, like: Meta, weight: int | None) -> str | None:
    """Return why a client's reply cannot go into the mean, or None; `weight` is what it must be."""
    if reply.has_error():
        return f"error {reply.error.code}: {one_line(reply.error.reason)}"
    try:
        kinds = {name: type(record) for name, record in reply.content.items()}
        if kinds != {ARRAYS: ArrayRecord, METRICS: MetricRecord}:
            return f"its records are not {ARRAYS} and {METRICS}"
        if not finite(tree_of(reply.content.array_records[ARRAYS], like)):
            return "its model is not finite"
        metrics = reply.content.metric_records[METRICS]
        if sorted(metrics) != sorted(SENT):
            return f"its metrics are not {', '.join(SENT)}"
        if not all(isinstance(x, int | float) and math.isfinite(x) for x in metrics.values()):
            return "its metrics are not finite numbers"
        count = metrics[COUNT]
        if count != weight if weight is not None else not count >= 1:  # type: ignore[operator]
            return f"it counts itself {count} times"
    except Exception as error:  # a client may send anything
        return f"it cannot be read: {one_line(error)}"
    return None


def unmoved(reply: Message, meta: Meta) -> bool:
    """Return whether the model of a valid reply equals this one."""
    leaves = jax.tree.leaves(tree_of(reply.content.array_records[ARRAYS], meta))
    return all(map(np.array_equal, leaves, jax.tree.leaves(meta)))


def size(message: Message) -> int:
    """Return the bytes of a message's records."""
    if message.has_error():
        return 0
    return sum(record.count_bytes() for record in message.content.values())
