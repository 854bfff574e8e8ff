"""Records to pytrees and back; and whether a record is what was asked for."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord

from moml.storage.arrays import named_leaves

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
COUNT = "num-examples"  # the weight of a reply, by the name that Flower has for it
TOLD = (COUNT, "loss", "before", "after")  # all that a client tells besides its model


def arrays_of(tree: Any) -> ArrayRecord:
    """The leaves of a tree by their paths, in order."""
    leaves = named_leaves(tree, "w")
    return ArrayRecord({name: Array(np.asarray(leaf)) for name, leaf in leaves.items()})


def tree_of(record: Mapping[str, Array], like: Any) -> Any:
    """A tree of the form of `like` (arrays or their shapes); ValueError where it is another's."""
    names = named_leaves(like, "w")
    if list(record) != list(names):
        raise ValueError("its arrays have other names than the model's")
    leaves = []
    for name, leaf in names.items():
        told = record[name]
        if tuple(told.shape) != leaf.shape or told.dtype != str(leaf.dtype):
            raise ValueError(f"{name} is not {leaf.dtype}{list(leaf.shape)}")
        found = told.numpy()
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise ValueError(f"{name} is not {leaf.dtype}{list(leaf.shape)}, as it says")
        leaves.append(found)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def finite(tree: Any) -> bool:
    """Whether every number of a tree is finite."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def verify(reply: Message, like: Any, weight: int | None) -> str | None:
    """Why a client's reply cannot go into the mean, or None. `weight` is what it must count."""
    if reply.has_error():
        return f"error {reply.error.code}: {line(reply.error.reason)}"
    try:
        if sorted(reply.content) != [ARRAYS, METRICS]:
            return f"its records are not {ARRAYS} and {METRICS}"
        arrays, metrics = reply.content[ARRAYS], reply.content[METRICS]
        if not isinstance(arrays, ArrayRecord) or not isinstance(metrics, MetricRecord):
            return f"its records are not {ARRAYS} and {METRICS}"
        if not finite(tree_of(arrays, like)):
            return "its model is not finite"
        if sorted(metrics) != sorted(TOLD):
            return f"its metrics are not {', '.join(TOLD)}"
        numbers = list(metrics.values())
        if not all(isinstance(x, int | float) and math.isfinite(x) for x in numbers):
            return "its metrics are not finite numbers"
        count = metrics[COUNT]
        if count != weight if weight is not None else not count >= 1:  # type: ignore[operator]
            return f"it counts itself {count} times"
    except Exception as error:  # what others send may be anything
        return f"it cannot be read: {line(str(error))}"
    return None


def same(reply: Message, meta: Any) -> bool:
    """Whether a good reply's model is this one."""
    mine = tree_of(reply.content.array_records[ARRAYS], meta)
    pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(meta), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def size(message: Message) -> int:
    """The bytes of a message's records."""
    if message.has_error():
        return 0
    return sum(record.count_bytes() for record in message.content.values())


def line(text: Any) -> str:
    """What others wrote, in one line that is not long."""
    return " ".join(str(text).split())[:200]
