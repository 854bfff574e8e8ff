"""Clients that own rows of one flat array: any sizes, no padding."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, Shaped
from numpy.typing import ArrayLike

from moml.errors import DataError
from moml.kept import kept
from moml.tasks.arrays import Ids, Sizes, drawn_rows
from moml.tasks.parts import (
    block_of,
    finite_rows,
    held_tree,
    is_array,
    named_leaves,
    padded,
    same_start,
    shapes_of,
    tree_on_device,
)
from moml.types import Batch, Tasks

Transform = Callable[[PyTree], PyTree]  # of the fetched rows of x


def unit(x: PyTree) -> PyTree:
    """Pixels 0 .. 255 as floats 0 .. 1; other types than uint8 are returned unchanged.

    >>> unit(jnp.array([0, 255], jnp.uint8)).tolist()
    [0.0, 1.0]
    """
    scaled = lambda x: x.astype(jnp.result_type(float)) / 255 if x.dtype == jnp.uint8 else x
    return jax.tree.map(scaled, x)


class Owned(NamedTuple):
    """Rows and their owners: client i owns the rows order[start[i] : start[i + 1]]."""

    x: PyTree[Shaped[Array | np.ndarray, " rows *_"]]
    y: PyTree[Shaped[Array | np.ndarray, " rows *_"]]
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
    most = max(len(rows) for rows, _ in used)
    x, y = jax.tree.map(lambda v: padded(np.asarray(v)[rows], most), whole[:2])
    mine = padded(mine.astype(np.int32), max(len(mine) for _, mine in used))
    first = start[which * block : (which + 1) * block] - ends[which]
    return Owned(x, y, mine, padded(first.astype(np.int32), block))


def from_rows(
    x: ArrayLike | PyTree,
    y: ArrayLike | PyTree,
    rows: Sequence[ArrayLike],
    transform: Transform = unit,
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
        Inputs [rows, ...] and targets [rows, ...]; either may be a pytree of such arrays. Rows that
        no client owns are dropped, unless x has jax arrays already: these are used as they are, and
        several splits share them.
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
    shared = all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(x, is_leaf=is_array))
    x, y = tree_on_device("x", x), tree_on_device("y", y)
    flat, sizes = owned_rows(x, y, rows)
    for name, values in named_leaves(x=x, y=y):
        if not jnp.issubdtype(values.dtype, jnp.inexact):
            continue
        bad = np.flatnonzero(~finite_rows(values, 1)[flat])
        if len(bad):
            client = np.searchsorted(np.cumsum(sizes), bad[0], side="right")
            where = f"client {client}, row {flat[bad[0]]}"
            raise DataError(f"{name} must be finite; {where} is not ({len(bad)} such rows)")
    if not shared:
        used, flat = np.unique(flat, return_inverse=True)
        x, y = jax.tree.map(lambda values: values[used], (x, y))
    most, least = int(sizes.max()), int(sizes.min())
    start = jnp.asarray(np.cumsum(sizes) - sizes, jnp.int32)
    even = least == most if alike is None else alike
    fetch, full = _functions(transform, most)
    return Tasks(
        len(sizes), drawn_rows(most if even else None), fetch, jnp.asarray(sizes, jnp.int32),
        Owned(x, y, jnp.asarray(flat, jnp.int32), start), full, _block, sized=True,
        least=least, most=most,
    )  # fmt: skip


def from_lists(
    xs: Sequence[ArrayLike | PyTree],
    ys: Sequence[ArrayLike | PyTree],
    transform: Transform = unit,
) -> Tasks:
    """Tasks from lists: task i owns the rows xs[i][j], ys[i][j], as many as it has.

    Parameters
    ----------
    xs, ys
        Inputs [samples, ...] and targets [samples, ...] of each task, of any lengths; or pytrees of
        such arrays.
    transform
        See `moml.from_rows`.

    Returns
    -------
    Tasks
        A family with one task an entry of the lists. Nothing is padded.

    >>> tasks = from_lists([np.zeros((5, 2)), np.zeros((3, 2))], [np.zeros(5), np.ones(3)])
    >>> tasks.n, tasks.least, tasks.full(jnp.array([1])).y.tolist()
    (2, 3, [[1.0, 1.0, 1.0]])
    """
    if not len(xs) or len(xs) != len(ys):
        raise DataError(f"xs and ys must have an entry a task; got {len(xs)} and {len(ys)}")
    parts = []
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        held = held_tree(f"xs[{i}]", x), held_tree(f"ys[{i}]", y)
        if same_start(*held, 1) is None:
            given = ", ".join(map(shapes_of, held))
            raise DataError(f"xs[{i}] and ys[{i}] must have the same [samples]; got {given}")
        parts.append(held)
    try:
        x, y = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    except ValueError as error:
        raise DataError(f"xs and ys must have rows of one shape: {error}") from error
    ends = np.cumsum([len(jax.tree.leaves(part)[0]) for part in parts])
    return from_rows(x, y, np.split(np.arange(ends[-1]), ends[:-1]), transform)


def owned_rows(
    x: PyTree, y: PyTree, rows: Sequence[ArrayLike]
) -> tuple[Int[np.ndarray, " owned"], Int[np.ndarray, " clients"]]:
    """The rows of all clients, one client after the other, and the numbers of their rows."""
    start = same_start(x, y, 1)
    if start is None:
        given = f"{shapes_of(x)}, {shapes_of(y)}"
        raise DataError(f"x and y must start with the same [rows]; got {given}")
    owned = all_rows("rows", "client", rows, start[0])
    return np.concatenate(owned), np.array([len(mine) for mine in owned])


@kept
def _functions(
    transform: Transform, most: int
) -> tuple[Callable[[Owned, Array, Array], Batch], Callable[[Sizes, Owned, Ids], Batch]]:
    """Fetch the rows of clients that have at most so many; some of them, or all."""

    def fetch(
        owned: Owned, ids: Int[Array, "*tasks"], samples: Int[Array, "*tasks_visits_size"]
    ) -> Batch:
        first = jnp.expand_dims(owned.start[ids], range(ids.ndim, samples.ndim))
        at = owned.order[first + samples.astype(jnp.int32)]
        x, y = jax.tree.map(lambda values: values[at], owned[:2])
        return Batch(transform(x), y)

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
