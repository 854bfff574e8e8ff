"""Some tasks of a family as a family of their own, such as those that are held out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from moml.errors import DataError
from moml.kept import kept
from moml.types import Key, Samples, Tasks


@kept
def _draw(draw: Callable[..., PyTree]) -> Callable[..., PyTree]:
    def run(index: PyTree, key: Key, ids: Int[Array, " tasks"], size: int) -> PyTree:
        return draw(index[1], key, index[0][ids], size)

    return run


@kept
def _fetch(fetch: Callable[..., Samples]) -> Callable[..., Samples]:
    return lambda data, ids, drawn: fetch(data[1], data[0][ids], drawn)


def subset(tasks: Tasks, ids: Int[np.ndarray, " some"]) -> Tasks:
    """The tasks with these ids, numbered from 0 in their order.

    >>> from moml.tasks import from_arrays
    >>> tasks = from_arrays(np.arange(12.0).reshape(4, 3), np.zeros((4, 3)))
    >>> few = subset(tasks, np.array([3, 1]))
    >>> few.n, sorted(few.fetch(jnp.array([0]), jnp.array([[0, 1, 2]])).x.ravel().tolist())
    (2, [9.0, 10.0, 11.0])
    """
    if tasks.n is None:
        raise DataError("tasks must be a fixed set; got a stream")
    which = jnp.asarray(ids, jnp.int32)
    read = tasks.read
    more: dict[str, Any] = {}
    if read is not None:
        more["read"] = lambda some, drawn: read(np.asarray(ids)[some], drawn)
    if tasks.sized:  # what is drawn depends on a task's size alone
        more |= {"index": jnp.asarray(tasks.index)[which]}
    else:
        more |= {"index": (which, tasks.index), "draw_from": _draw(tasks.draw_from)}
    return replace(
        tasks, n=len(ids), data=(which, tasks.data), fetch_from=_fetch(tasks.fetch_from),
        full_from=None, cut=None, **more,
    )  # fmt: skip
