"""Tasks over memory-mapped .npy files: data larger than memory.

Only the rows that are drawn are read. A stretch of training reads those of its steps before it
begins, and they are an argument of its program; elsewhere a callback reads them.
"""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree
from numpy.typing import ArrayLike

from moml.data.exact import exact
from moml.errors import DataError
from moml.tasks.arrays import Ids, Sizes, drawn_rows
from moml.tasks.clients import Transform, owned_rows, unit
from moml.types import Batch, Tasks

PIECE = 1024  # rows that are mapped at once


@dataclass(frozen=True, eq=False)
class Mapped:
    """Files, and their owners: client i owns the rows order[start[i] : start[i + 1]]."""

    x: PyTree
    y: PyTree
    order: Int[np.ndarray, " owned"]
    start: Int[np.ndarray, " clients"]
    transform: Transform

    def read(self, ids: Int[np.ndarray, "*tasks"], samples: Int[np.ndarray, "*size"]) -> Batch:
        """The drawn rows of some tasks, as they are in the files."""
        first = np.expand_dims(self.start[ids], [*range(ids.ndim, samples.ndim)])
        at = self.order[first + samples]
        return Batch(*jax.tree.map(lambda file: _rows(file, at), (self.x, self.y)))

    def fetch(self, data: PyTree, ids: Int[Array, "*tasks"], drawn: PyTree) -> Batch:
        """The drawn rows, read already or not, as the network takes them."""
        batch = drawn if isinstance(drawn, Batch) else self._called(ids, drawn)
        return batch._replace(x=self.transform(batch.x))

    def full(self, sizes: Sizes, data: PyTree, ids: Ids) -> Batch:
        """All rows of some tasks, padded to the largest of all."""
        place = jnp.arange(int(np.diff(self.start, append=len(self.order)).max()), dtype=jnp.int32)
        mask = jax.vmap(lambda size: place < size)(sizes[ids])
        rows = self.fetch(data, ids, jnp.where(mask, place[None], 0))
        return Batch(rows.x, rows.y, mask)

    def _called(self, ids: Int[Array, "*tasks"], samples: Int[Array, "*size"]) -> Batch:
        like = lambda file: jax.ShapeDtypeStruct(
            (*samples.shape, *file.shape[1:]), jax.dtypes.canonicalize_dtype(file.dtype)
        )
        read = lambda ids, samples: self.read(np.asarray(ids), np.asarray(samples))
        shapes = Batch(*jax.tree.map(like, (self.x, self.y)))
        return jax.pure_callback(read, shapes, ids, samples, vmap_method="broadcast_all")


def _rows(file: np.ndarray, at: Int[np.ndarray, "*size"]) -> np.ndarray:
    """Rows of a file, in ascending order on the disk; integers as JAX holds them exactly."""
    used, where = np.unique(at, return_inverse=True)
    rows = np.empty((len(used), *file.shape[1:]), file.dtype)
    for i in range(0, len(used), PIECE):
        rows[i : i + PIECE] = file[used[i : i + PIECE]]
        _advise(file, "MADV_DONTNEED")  # the system may cache what was read, the process holds none
    dtype = jax.dtypes.canonicalize_dtype(file.dtype)
    held = exact("a row", rows, 8 * dtype.itemsize).astype(dtype, copy=False)
    return held[where.reshape(at.shape)]


def _advise(file: np.ndarray, advice: str) -> None:
    """Tell the system how a mapped file is used, where there is such a call."""
    base: object = file
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, advice):
        base.madvise(getattr(mmap, advice))


def _opened(name: str, file: str | Path | np.ndarray) -> np.ndarray:
    if isinstance(file, np.ndarray):
        return file
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{name} must be a .npy file of numbers: {error}") from error
    _advise(array, "MADV_RANDOM")  # nothing is read ahead
    return array


def from_files(
    x: PyTree,
    y: PyTree,
    rows: Sequence[ArrayLike],
    transform: Transform = unit,
) -> Tasks:
    """Tasks from memory-mapped files: client i owns the rows x[rows[i]], y[rows[i]].

    Draws and results are those of `moml.from_rows` with the same arrays; only the rows that are
    drawn are read. Values are not checked in advance: a number that is not finite ends the training
    at its step.

    Parameters
    ----------
    x, y
        Paths of .npy files [rows, ...], or memory-mapped arrays; either may be a pytree of them.
    rows
        One array of row numbers a client, or a range. They are held in memory.
    transform
        Maps the fetched rows of x to the network's inputs, so that images stay in bytes.

    Returns
    -------
    Tasks
        A family with one task a client.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "x.npy", np.zeros((6, 2), np.float32))
    >>> np.save(folder / "y.npy", np.arange(6))
    >>> tasks = from_files(folder / "x.npy", folder / "y.npy", [range(4), [5, 4]])
    >>> tasks.n, tasks.full(jnp.array([1])).y[0, :2].tolist()
    (2, [5, 4])
    """
    opened = lambda name, tree: jax.tree.map(lambda file: _opened(name, file), tree)
    x, y = opened("x", x), opened("y", y)
    flat, sizes = owned_rows(x, y, rows)
    start, most, least = np.cumsum(sizes) - sizes, int(sizes.max()), int(sizes.min())
    mapped = Mapped(x, y, flat, start, transform)
    return Tasks(
        len(sizes), drawn_rows(most if least == most else None), mapped.fetch,
        jnp.asarray(sizes, jnp.int32), full_from=mapped.full, sized=True, least=least,
        read=mapped.read,
    )  # fmt: skip
