"""Tasks whose batches carry random bits, from which a loss with a key makes its key."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, UInt32

from moml.errors import DataError
from moml.kept import kept
from moml.types import Batch, Key, Samples, Tasks

BITS = 5  # folded into the key of a draw: what else it draws stays as it is


class Keyed(NamedTuple):
    """What was drawn, and 32 random bits of each sample."""

    samples: PyTree
    bits: UInt32[Array, "*tasks size"]


def keyed(tasks: Tasks) -> Tasks:
    """The same tasks, with 32 random bits of every drawn sample, `batch.bits`.

    A loss made by `moml.models.wrap_loss(..., key=True)` gets its key from them. The samples
    that are drawn, sizes and all else are those of `tasks`. All data of a task, as scores take it,
    has no bits.

    Parameters
    ----------
    tasks
        Tasks whose samples are a `moml.Batch`.

    Returns
    -------
    Tasks
        A family with as many tasks.

    >>> from moml.tasks import sine
    >>> tasks, ids = keyed(sine()), jnp.array([0, 1], jnp.int32)
    >>> tasks.fetch(ids, tasks.draw(jax.random.key(0), ids, 5)).bits.shape
    (2, 5)
    """
    draw, fetch, read = _functions(tasks.draw_from, tasks.fetch_from, tasks.ways, tasks.read)
    rows = _with_rows(tasks.rows_from)
    return replace(tasks, draw_from=draw, fetch_from=fetch, read=read, rows_from=rows)


@kept
def _with_rows(rows_from: Callable[[Key, PyTree], PyTree] | None) -> Callable[[Key, PyTree], Keyed]:
    """A draw of given rows [tasks, ...], as the tasks have it, with bits of each."""

    def rows(key: Key, given: Int[Array, "..."]) -> Keyed:
        bits = jax.random.bits(jax.random.fold_in(key, BITS), given.shape, jnp.uint32)
        return Keyed(given if rows_from is None else rows_from(key, given), bits)

    return rows


@kept
def _functions(
    draw_from: Callable[..., PyTree],
    fetch_from: Callable[..., Samples],
    ways: int,
    read_from: Callable[..., PyTree] | None,
) -> tuple[Callable[..., PyTree], Callable[..., Samples], Callable[..., PyTree] | None]:
    def draw(index: PyTree, key: Key, ids: Int[Array, " tasks"], size: int) -> Keyed:
        bits = jax.random.bits(jax.random.fold_in(key, BITS), (len(ids), size), jnp.uint32)
        return Keyed(draw_from(index, key, ids, size), bits)

    def fetch(data: PyTree, ids: Int[Array, "*tasks"], drawn: PyTree) -> Samples:
        if not isinstance(drawn, Keyed):  # not by the draw above: all samples of a task
            return fetch_from(data, ids, drawn)
        batch = fetch_from(data, ids, drawn.samples)
        if not isinstance(batch, Batch):
            raise DataError(f"keyed tasks must have samples in a moml.Batch; got {type(batch)}")
        return batch._replace(bits=jnp.repeat(drawn.bits, ways, axis=-1))

    if read_from is None:
        return draw, fetch, None
    return draw, fetch, lambda ids, drawn: drawn._replace(samples=read_from(ids, drawn.samples))


def without_bits(samples: Samples) -> Samples:
    """The samples as a loss that takes a key must not draw for them."""
    return samples._replace(bits=None) if isinstance(samples, Batch) else samples
