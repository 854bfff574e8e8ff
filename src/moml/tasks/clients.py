"""Clients that own rows of one flat array: any sizes, no padding."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped
from numpy.typing import ArrayLike

from moml.errors import DataError
from moml.kept import kept
from moml.tasks.arrays import Ids, Sizes, drawn_rows
from moml.tasks.parts import block_of, on_device, padded
from moml.types import Batch, Tasks


def unit(x: Array) -> Array:
    """Pixels 0 .. 255 as floats 0 .. 1; other types than uint8 are returned unchanged.

    >>> unit(jnp.array([0, 255], jnp.uint8)).tolist()
    [0.0, 1.0]
    """
    return x.astype(jnp.result_type(float)) / 255 if x.dtype == jnp.uint8 else x


class Owned(NamedTuple):
    """Rows and their owners: client i owns the rows order[start[i] : start[i + 1]]."""

    x: Shaped[Array | np.ndarray, " rows *x"]
    y: Shaped[Array | np.ndarray, " rows *y"]
    order: Int[Array | np.ndarray, " owned"]
    start: Int[Array | np.ndarray, " clients"]


def _block(whole: Owned, devices: int, which: int) -> Owned:
    """The rows of one device's clients, padded to the length of the longest device."""
    start = np.asarray(whole.start)
    sizes, block = np.diff(start, append=len(whole.order)), block_of(len(start), devices)
    ends = [int(sizes[: d * block].sum()) for d in range(devices + 1)]
    order = np.asarray(whole.order)
    used = [np.unique(order[a:b], return_inverse=True) for a, b in pairwise(ends)]
    rows, mine = used[which]
    x, y = (padded(v[rows], max(len(rows) for rows, _ in used)) for v in map(np.asarray, whole[:2]))
    mine = padded(mine.astype(np.int32), max(len(mine) for _, mine in used))
    first = start[which * block : (which + 1) * block] - ends[which]
    return Owned(x, y, mine, padded(first.astype(np.int32), block))


def from_rows(
    x: ArrayLike | Array,
    y: ArrayLike | Array,
    rows: Sequence[ArrayLike],
    transform: Callable[[Array], Array] = unit,
    *,
    alike: bool | None = None,
) -> Tasks:
    """Tasks from flat arrays: client i owns the rows x[rows[i]], y[rows[i]].

    A visit draws distinct rows where the client has enough of them, else with replacement. `full`
    pads to the largest of the clients it is asked for (under `jit`, where these are unknown, of
    all).

    Parameters
    ----------
    x, y
        Inputs [rows, ...] and targets [rows, ...]. Rows that no client owns are dropped, unless x
        is a jax array already: that is used as it is, and several splits share it.
    rows
        One array of row numbers a client.
    transform
        Maps the fetched rows of x to the network's inputs, so that images stay in bytes.
    alike
        Clients of equal size are drawn from a little faster. False switches that off, so that the
        draw of a client does not depend on the sizes of others; by default it is on if all sizes
        are equal.

    Returns
    -------
    Tasks
        A family with one task a client.

    >>> import numpy as np
    >>> tasks = from_rows(np.zeros((6, 2)), np.arange(6), [[0, 2, 4, 5], [1]])
    >>> tasks.n, tasks.least, tasks.full(jnp.array([1])).y.tolist()
    (2, 1, [[1]])
    """
    shared = isinstance(x, jax.Array)
    x, y = on_device("x", x), on_device("y", y)
    if not x.ndim or not y.ndim or len(x) != len(y) or not len(x):
        raise DataError(f"x and y must start with the same [rows]; got {x.shape}, {y.shape}")
    owned = all_rows("rows", "client", rows, len(x))
    sizes = np.array([len(mine) for mine in owned])
    flat = np.concatenate(owned)
    for name, values in {"x": x, "y": y}.items():
        if not jnp.issubdtype(values.dtype, jnp.inexact):
            continue
        good = np.isfinite(np.asarray(values)).reshape(len(values), -1).all(axis=1)
        bad = np.flatnonzero(~good[flat])
        if len(bad):
            client = np.searchsorted(np.cumsum(sizes), bad[0], side="right")
            where = f"client {client}, row {flat[bad[0]]}"
            raise DataError(f"{name} must be finite; {where} is not ({len(bad)} such rows)")
    if not shared:
        used, flat = np.unique(flat, return_inverse=True)
        x, y = x[used], y[used]
    most, least = int(sizes.max()), int(sizes.min())
    start = jnp.asarray(np.cumsum(sizes) - sizes, jnp.int32)
    even = least == most if alike is None else alike
    fetch, full = _functions(transform, most)
    return Tasks(
        len(sizes), drawn_rows(most if even else None), fetch, jnp.asarray(sizes, jnp.int32),
        Owned(x, y, jnp.asarray(flat, jnp.int32), start), full, _block, sized=True, least=least,
    )  # fmt: skip


@kept
def _functions(
    transform: Callable[[Array], Array], most: int
) -> tuple[Callable[[Owned, Array, Array], Batch], Callable[[Sizes, Owned, Ids], Batch]]:
    """Fetch the rows of clients that have at most so many; some of them, or all."""

    def fetch(
        owned: Owned, ids: Int[Array, "*tasks"], samples: Int[Array, "*tasks_visits_size"]
    ) -> Batch:
        first = owned.start[ids].reshape(ids.shape + (1,) * (samples.ndim - ids.ndim))
        at = owned.order[first + samples.astype(jnp.int32)]
        return Batch(transform(owned.x[at]), owned.y[at])

    def full(sizes: Sizes, owned: Owned, ids: Ids) -> Batch:
        traced = any(isinstance(value, jax.core.Tracer) for value in (sizes, ids))
        width = most if traced else int(np.asarray(sizes)[np.asarray(ids)].max())
        place = jnp.arange(width, dtype=jnp.int32)
        mask = jax.vmap(lambda size: place < size)(sizes[ids])
        rows = fetch(owned, ids, jnp.where(mask, place[None], 0))  # padding repeats the first row
        return Batch(rows.x, rows.y, mask)

    return fetch, full


def buckets(sizes: ArrayLike) -> list[Int[np.ndarray, " _"]]:
    """Clients by size, 2^(b-1) < size <= 2^b in bucket b, ascending; empty buckets are left out.

    Padded to its largest client, a bucket has less than twice its number of real rows.

    >>> [ids.tolist() for ids in buckets([1, 900, 5, 8, 600])]
    [[0], [2, 3], [1, 4]]
    """
    sizes = np.asarray(sizes)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any():
        raise DataError(f"sizes must be whole numbers from 1; got {sizes.tolist()[:8]}")
    power = np.frexp(sizes - 1.0)[1]  # bits of size - 1
    return [np.flatnonzero(power == b) for b in np.unique(power)]


def all_rows(name: str, owner: str, rows: Sequence[ArrayLike], below: int) -> list[np.ndarray]:
    """The rows of each owner, one array of distinct numbers below `below` for each."""
    must = f"{name} must have one array of row numbers a {owner}"
    try:
        given = [np.asarray(mine) for mine in rows]
    except (TypeError, ValueError) as error:
        raise DataError(f"{must}: {error}") from error
    if not given:
        raise DataError(f"{must}; got none")
    if not given[0].ndim:
        ids = "from ids, moml.data.by_column(ids).rows makes them"
        raise DataError(f"{must}; got {given[0].tolist()!r} ({ids})")
    return [_checked_rows(f"{owner} {i}", mine, below) for i, mine in enumerate(given)]


def _checked_rows(owner: str, mine: np.ndarray, below: int) -> np.ndarray:
    """The rows of a client or group, which must be distinct numbers below `below`."""
    if mine.ndim == 1 and not len(mine):
        raise DataError(f"{owner} has no samples; leave it out")
    if mine.ndim != 1 or mine.dtype.kind not in "iu" or mine.min() < 0 or mine.max() >= below:
        must = f"rows of {owner} must be whole numbers from 0 to {below - 1}"
        raise DataError(f"{must}; got {mine.tolist()[:8]}")
    if len(np.unique(mine)) < len(mine):
        raise DataError(f"{owner} has a row twice")
    return mine
