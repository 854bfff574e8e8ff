"""Clients that own rows of one flat array: any sizes, no padding."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from moml.errors import DataError
from moml.tasks.parts import block_of, padded
from moml.tasks.sampler import distinct_or_not
from moml.types import Batch, Key, Parts, Tasks


def unit(x: Array) -> Array:
    """Pixels 0 .. 255 as floats 0 .. 1; what is not uint8 stays as it is.

    >>> unit(jnp.array([0, 255], jnp.uint8)).tolist()
    [0.0, 1.0]
    """
    return x.astype(jnp.result_type(float)) / 255 if x.dtype == jnp.uint8 else x


class Owned(NamedTuple):
    """Rows, and which of them are whose: those of client i are order[start[i] :], in order."""

    x: Any
    y: Any
    order: Any
    start: Any


def _block(whole: Owned, sizes: np.ndarray, devices: int, which: int) -> Owned:
    """What one device's clients own, with the rows that they use; as long as any device's."""
    start, block = np.cumsum(sizes) - sizes, block_of(len(sizes), devices)
    ends = [int(sizes[: d * block].sum()) for d in range(devices + 1)]
    order = np.asarray(whole.order)
    used = [np.unique(order[a:b], return_inverse=True) for a, b in pairwise(ends)]
    rows, own = used[which]
    x, y = (padded(v[rows], max(len(rows) for rows, _ in used)) for v in map(np.asarray, whole[:2]))
    own = padded(own.astype(np.int32), max(len(own) for _, own in used))
    first = start[which * block : (which + 1) * block] - ends[which]
    return Owned(x, y, own, padded(first.astype(np.int32), block))


def from_rows(
    x: Any,
    y: Any,
    rows: Sequence[Any],
    transform: Callable[[Array], Array] = unit,
    *,
    alike: bool | None = None,
) -> Tasks:
    """Tasks from arrays x [rows, ...] and y [rows, ...]: client i owns the rows rows[i] of both.

    x stays as it is, images in bytes: `transform` makes the network's input of the samples that a
    visit fetches. Rows that nobody owns are not kept, unless x is a `jnp` array already: that is
    kept whole, and several splits share it. A visit draws different rows where the client has
    enough of them, else with replacement. `full` pads to the largest of the clients it is asked for
    (under `jit`, where these are not known, of all). Clients that all have as many rows are drawn
    from a little faster; with `alike=False` as if they had not, so that what a client draws does
    not hang on the others.

    >>> import numpy as np
    >>> tasks = from_rows(np.zeros((6, 2)), np.arange(6), [[0, 2, 4, 5], [1]])
    >>> tasks.n, tasks.least, tasks.full(jnp.array([1])).y.tolist()
    (2, 1, [[1]])
    """
    shared = isinstance(x, jax.Array)
    try:
        x, y = jnp.asarray(x), jnp.asarray(y)
    except (TypeError, ValueError) as error:
        raise DataError(f"x and y must be arrays of numbers: {error}") from error
    if not x.ndim or not y.ndim or len(x) != len(y) or not len(x):
        raise DataError(f"x has shape {x.shape}, y {y.shape}: both must start with the same [rows]")
    owned = [checked_rows(f"client {i}", mine, len(x)) for i, mine in enumerate(rows)]
    if not owned:
        raise DataError("rows must have one array of row numbers a client; given none")
    sizes = np.array([len(mine) for mine in owned])
    flat = np.concatenate(owned)
    for name, values in {"x": x, "y": y}.items():
        if not jnp.issubdtype(values.dtype, jnp.inexact):
            continue
        good = np.isfinite(np.asarray(values)).reshape(len(values), -1).all(axis=1)
        bad = np.flatnonzero(~good[flat])
        if len(bad):
            client = np.searchsorted(np.cumsum(sizes), bad[0], side="right")
            raise DataError(
                f"{name} of client {client}, row {flat[bad[0]]} is not finite "
                f"({len(bad)} such rows)"
            )
    if not shared:
        used, flat = np.unique(flat, return_inverse=True)
        x, y = x[used], y[used]
    n, m, least = len(sizes), int(sizes.max()), int(sizes.min())
    start = jnp.asarray(np.cumsum(sizes) - sizes, jnp.int32)
    count, held = jnp.asarray(sizes, jnp.int32), Owned(x, y, jnp.asarray(flat, jnp.int32), start)
    even = least == m if alike is None else alike

    def draw(key: Key, ids: Int[Array, " tasks"], size: int) -> Int[Array, " tasks size"]:
        keys = jax.random.split(key, len(ids))
        if even:
            return jax.vmap(lambda key: distinct_or_not(key, m, size))(keys)
        return jax.vmap(lambda key, n: distinct_or_not(key, n, size))(keys, count[ids])

    def fetch_of(
        held: Owned, ids: Int[Array, "*tasks"], samples: Int[Array, "*tasks_visits_size"]
    ) -> Batch:
        first = held.start[ids].reshape(ids.shape + (1,) * (samples.ndim - ids.ndim))
        at = held.order[first + samples.astype(jnp.int32)]
        return Batch(transform(held.x[at]), held.y[at])

    fetch = partial(fetch_of, held)

    def full(ids: Int[Array, " tasks"]) -> Batch:
        width = m if isinstance(ids, jax.core.Tracer) else int(sizes[np.asarray(ids)].max())
        place = jnp.arange(width, dtype=jnp.int32)
        mask = jax.vmap(lambda size: place < size)(count[ids])
        padded = fetch(ids, jnp.where(mask, place[None], 0))  # padding repeats the first row
        return Batch(padded.x, padded.y, mask)

    owned_by = lambda ids: count[ids]
    parts = Parts(partial(_block, held, sizes), fetch_of)
    return Tasks(n=n, draw=draw, fetch=fetch, full=full, least=least, sizes=owned_by, parts=parts)


def buckets(sizes: Any) -> list[Int[np.ndarray, " _"]]:
    """Clients by size, 2^(b-1) < size <= 2^b in bucket b, small ones first; empty buckets left out.

    Padded to its largest client, a bucket has less than twice the rows that are real.

    >>> [ids.tolist() for ids in buckets([1, 900, 5, 8, 600])]
    [[0], [2, 3], [1, 4]]
    """
    sizes = np.asarray(sizes)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any():
        raise DataError(f"sizes must be whole numbers from 1; given {sizes.tolist()[:8]}")
    power = np.frexp(sizes - 1.0)[1]  # bits of size - 1
    return [np.flatnonzero(power == b) for b in np.unique(power)]


def checked_rows(owner: str, rows: Any, below: int) -> np.ndarray:
    """The rows of a client or group, if they are some, of these, and different."""
    mine = np.asarray(rows)
    if mine.ndim == 1 and not len(mine):
        raise DataError(f"{owner} has no samples; leave it out")
    if mine.ndim != 1 or mine.dtype.kind not in "iu" or mine.min() < 0 or mine.max() >= below:
        raise DataError(
            f"rows of {owner} must be whole numbers from 0 to {below - 1}; "
            f"given {mine.tolist()[:8]}"
        )
    if len(np.unique(mine)) < len(mine):
        raise DataError(f"{owner} has a row twice")
    return mine
