"""A table's tasks: groups of rows of any size, with known rows (support) and others (query)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped, UInt
from numpy.typing import ArrayLike

from moml.errors import DataError, check_count
from moml.kept import kept
from moml.tasks.clients import all_rows
from moml.tasks.parts import as_held
from moml.types import Batch, Key, Tasks

# Primes just below 2^31, as strides.
STRIDES = 2**31 - np.array(
    [1, 19, 61, 69, 85, 99, 105, 151, 159, 171, 225, 249, 295, 325, 379, 399, 411, 469, 477, 511]
)


def strided(
    bits: UInt[Array, " 2"], n: Int[Array, ""], place: Int[Array, " size"]
) -> Int[Array, " size"]:
    """Rows (start + place * stride) % n, distinct for distinct places below n.

    The strides are primes above any n, so they share no divisor with it.
    """
    first = below(bits[0], n)
    step = jnp.asarray(STRIDES, jnp.int32)[below(bits[1], jnp.int32(len(STRIDES)))] % n
    return (first + place * step) % n


def below(bits: UInt[Array, ""], n: Int[Array, ""]) -> Int[Array, ""]:
    """A number from 0 to n - 1 from random bits, of which one call draws many."""
    return (bits % n.astype(jnp.uint32)).astype(jnp.int32)


class Grouped(NamedTuple):
    """Rows and their owners: group i owns the rows order[start[i] : start[i] + size[i]]."""

    x: Shaped[Array | np.ndarray, " rows *x"]
    y: Shaped[Array | np.ndarray, " rows *y"]
    weights: Float[Array | np.ndarray, " rows"]
    order: Int[Array | np.ndarray, " owned"]
    start: Int[Array | np.ndarray, " groups"]
    size: Int[Array | np.ndarray, " groups"]


def from_groups(
    x: ArrayLike | Array,
    y: ArrayLike | Array,
    groups: Sequence[ArrayLike],
    *,
    shots: int,
    ordered: bool = False,
    weights: ArrayLike | Array | None = None,
) -> Tasks:
    """Tasks from rows x [rows, features], y [rows, ...]: group i owns rows groups[i], in order.

    The support of a visit are s rows of a group of n, s ~ U{1, ..., min(shots, n - 1)}, its query
    others: with `ordered` the first s and then later ones, else any. The first `shots` places of a
    draw are the support, the rest the query; unused places are masked. A group of one row has a
    query alone. `mask` has the rows' weights, 1 by default.

    >>> import numpy as np
    >>> tasks = from_groups(np.zeros((6, 2)), np.arange(6.0), [[0, 2, 4, 5], [1, 3]], shots=3)
    >>> drawn = tasks.draw(jax.random.key(0), jnp.array([1]), 5)
    >>> sorted(tasks.fetch(jnp.array([1]), drawn).y[drawn >= 0].tolist())
    [1.0, 3.0]
    """
    rows = Grouped(*map(jnp.asarray, grouped(x, y, groups, weights)))
    return replace(drawn_from(rows, shots=shots, ordered=ordered), least=int(np.min(rows.size)))


def grouped(
    x: ArrayLike | Array,
    y: ArrayLike | Array,
    groups: Sequence[ArrayLike],
    weights: ArrayLike | Array | None = None,
) -> Grouped:
    """The rows of the groups, validated; arrays of numpy."""
    x, y = (np.asarray(as_held(name, v)) for name, v in {"x": x, "y": y}.items())
    if x.ndim < 1 or y.ndim < 1 or len(x) != len(y) or not len(x):
        raise DataError(f"x and y must start with the same [rows]; got {x.shape}, {y.shape}")
    owned = all_rows("groups", "group", groups, len(x))
    weigh = np.ones(len(x), x.dtype) if weights is None else np.asarray(weights, x.dtype)
    sizes = np.array([len(mine) for mine in owned], np.int32)
    start, order = np.cumsum(sizes) - sizes, np.concatenate(owned)
    return Grouped(x, y, weigh, order.astype(np.int32), start.astype(np.int32), sizes)


def places(
    bits: UInt[Array, " 3"], n: Int[Array, ""], size: int, *, shots: int, ordered: bool
) -> Int[Array, " size"]:
    """The places of a visit's rows among the n of its group, -1 for none; see `from_groups`."""
    most = jnp.minimum(shots, n - 1)
    s = jnp.where(most > 0, 1 + below(bits[0], jnp.maximum(most, 1)), 0)
    place = jnp.arange(size, dtype=jnp.int32)
    support, asked = place < shots, place - shots
    if ordered:  # the first s, then any of the later ones
        rows = jnp.where(support, place, s + strided(bits[1:], n - s, asked))
    else:  # s rows of a shuffle, then the ones that follow them in it
        rows = strided(bits[1:], n, jnp.where(support, place, s + asked))
    return jnp.where(jnp.where(support, place < s, asked < n - s), rows, -1)


def drawn_from(rows: Grouped, *, shots: int, ordered: bool = False) -> Tasks:
    """The groups as tasks; see `from_groups`. The rows may be traced."""
    draw = _drawn(check_count("shots", shots), ordered)
    return Tasks(len(rows.size), draw, _fetch, rows.size, rows, sized=True)


@kept
def _drawn(shots: int, ordered: bool) -> Callable[..., Int[Array, "tasks size"]]:
    """The draw of support and query rows of some groups; -1 where there is none."""

    def one(key: Key, n: Int[Array, ""], size: int) -> Int[Array, " size"]:
        bits = jax.random.bits(key, (3,), jnp.uint32)
        return places(bits, n, size, shots=shots, ordered=ordered)

    def draw(
        sizes: Int[Array, " groups"], key: Key, ids: Int[Array, " tasks"], size: int
    ) -> Int[Array, " tasks size"]:
        keys = jax.random.split(key, len(ids))
        return jax.vmap(lambda key, n: one(key, n, size))(keys, sizes[ids])

    return draw


def _fetch(rows: Grouped, ids: Int[Array, "*tasks"], samples: Int[Array, "*tasks_size"]) -> Batch:
    """The drawn rows of some groups, with their weights as a mask."""
    first = jnp.expand_dims(rows.start[ids], range(ids.ndim, samples.ndim))
    at = rows.order[first + jnp.maximum(samples, 0)]  # padding repeats the first row
    return Batch(rows.x[at], rows.y[at], jnp.where(samples >= 0, rows.weights[at], 0))
