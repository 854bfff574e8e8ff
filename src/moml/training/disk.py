"""Training with the memories on disk: a stretch holds the rows of the tasks that it visits.

While a piece of a stretch is computed, a thread writes the rows of the one before and reads those
of the next. A row that two pieces in a row visit goes from one to the other, not by the disk.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.parts.memory import parted, whole
from moml.algorithms.parts.schedule import Schedule, constant
from moml.runtime import partial_store as held
from moml.runtime import simulate
from moml.storage.rows_on_disk import RowsOnDisk
from moml.training.compose import fill_key
from moml.training.progress import bar
from moml.types import Algorithm, Hyper, Info, Key, Tasks

ROOM = 64 << 20  # bytes of rows that a piece may hold
NOBODY = np.iinfo(np.int32).max  # the id of padding


class Rows(NamedTuple):
    """The sealed rows of some tasks, ids ascending."""

    ids: np.ndarray
    rows: np.ndarray


def split(state: Any) -> tuple[Any, Any]:
    """A state without its rows, and the rows."""
    common, rows = parted(state.memory)
    return state._replace(memory=common), rows


class Disk:
    """Stretches of one training, `length` of its `steps` each, over the rows of a store.

    The carry is the state without its rows; `like` is a tree of that form with them (of shapes).
    """

    def __init__(
        self,
        algorithm: Algorithm,
        tasks: Tasks,
        store: RowsOnDisk,
        like: Any,
        key: Key,
        hyper: Hyper,
        *,
        steps: int,
        length: int,
        schedule: Schedule = constant,
        eager: int = 0,  # samples that each memory is filled from at the start
        room: int | None = None,
    ):
        self.store, self.steps, self.length, self._eager = store, steps, length, eager
        self._algorithm, self._tasks, self._key, self._hyper = algorithm, tasks, key, hyper
        self._tree = jax.tree.structure(split(like)[1])
        self._program = simulate.compiled(held.stretch(algorithm, tasks, schedule))
        self._visited = held.visited(algorithm, tasks)
        self._each = jax.eval_shape(lambda key: self._visited(key, 0, 1), key).size
        room = ROOM if room is None else room
        fits = max(1, room // (self._each * store.layout.width))
        self._most = length if store.n * store.layout.width <= room else min(length, fits)
        self._ahead: tuple[tuple[int, int], Future[Rows]] | None = None
        self._written: Future[None] | None = None
        self._left: Rows | None = None  # what the last piece left

    def __enter__(self) -> "Disk":
        self._pool = ThreadPoolExecutor(1, "rows")
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._ahead = self._written = self._left = None
        self.store.close()

    def verify(self, info: dict[str, Any]) -> str | None:
        """Why a checkpoint with these notes is of no use: the rows cannot go back to it."""
        return self.store.verify(info)

    def begin(self, carry: Any, step: int | None, *, shown: bool = False) -> None:
        """The rows as at a checkpoint, or with None at the very start."""
        if step is not None:
            self.store.back_to(step)
            return
        self.store.create()
        if self._eager:
            self._fill(carry, shown)

    def _fill(self, carry: Any, shown: bool) -> None:
        fill = jax.jit(held.fill(self._algorithm, self._tasks, self._eager))
        key, n = fill_key(self._key), self.store.n
        with bar("filling memories", n, shown=shown) as advance:
            for first in range(0, n, simulate.FILLED):
                ids = np.arange(first, min(first + simulate.FILLED, n))
                rows = np.zeros((len(ids), self.store.layout.stride), np.uint8)
                full = fill(self._held(carry, ids, rows, len(ids)), key, self._hyper)
                self.store.write(ids, self._packed(split(full.state)[1], len(ids)), rows)
                advance(first + len(ids))

    def run(self, carry: Any, begin: int, size: int) -> tuple[Any, Info]:
        """`size` steps from `begin`: the next carry, and what the steps showed."""
        infos = []
        for start, count in self._pieces(begin, size):
            piece = self._take(start, count)
            room = min(self.store.n, count * self._each)
            state = self._held(carry, piece.ids, piece.rows, room)
            self._look_ahead(start + count, begin + size)
            state, info = self._program(state, self._key, start, self._hyper, count)
            infos.append(jax.tree.map(np.asarray, info))
            carry, rows = split(state.state)
            self._put(piece, self._packed(rows, len(piece.ids)))
        return carry, jax.tree.map(lambda *parts: np.concatenate(parts), *infos)

    def saving(self, step: int, kept: list[int]) -> dict[str, Any]:
        """Notes for a checkpoint that is about to be written; see `RowsOnDisk.saving`."""
        self.settle()
        return self.store.saving(step, kept)

    def _pieces(self, begin: int, size: int) -> Iterator[tuple[int, int]]:
        for start in range(begin, begin + size, self._most):
            yield start, min(self._most, begin + size - start)

    def _held(self, carry: Any, ids: np.ndarray, rows: np.ndarray, room: int) -> held.Held:
        """A state with the rows of some tasks, and padding."""
        leaves = self.store.layout.unpack(rows, room)
        store = whole(carry.memory, jax.tree.unflatten(self._tree, leaves))
        padded = np.full(room, NOBODY, np.int32)
        padded[: len(ids)] = ids
        state = jax.tree.map(jnp.asarray, carry._replace(memory=store))
        return held.Held(state, jnp.asarray(padded))

    def _packed(self, rows: Any, count: int) -> np.ndarray:
        """The first `count` rows, sealed."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(rows)]
        return self.store.layout.pack(leaves, slice(count))

    def _begin_to_read(self, start: int, count: int) -> "Future[Rows]":
        ids = np.unique(np.asarray(self._visited(self._key, start, count))).astype(np.int64)
        return self._pool.submit(lambda: Rows(ids, self.store.read(ids)))

    def _look_ahead(self, start: int, end: int) -> None:
        """Begin to read what comes at `start`; `end` is the end of the stretch under way."""
        size = end - start or min(self.length, self.steps - start)
        if size > 0:
            at = next(self._pieces(start, size))
            self._ahead = at, self._begin_to_read(*at)

    def _take(self, start: int, count: int) -> Rows:
        """The rows for the next piece, with what the last one left in them."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != (start, count):
            ahead = (start, count), self._begin_to_read(start, count)
        piece = ahead[1].result()
        if self._left is not None:
            _, mine, theirs = np.intersect1d(
                piece.ids, self._left.ids, assume_unique=True, return_indices=True
            )
            piece.rows[mine] = self._left.rows[theirs]
        return piece

    def _put(self, old: Rows, new: np.ndarray) -> None:
        """Begin to write what a piece has left; the write before must have been done."""
        self.settle()
        self._left = Rows(old.ids, new)
        self._written = self._pool.submit(self.store.write, old.ids, new, old.rows)

    def settle(self) -> None:
        """Wait until all that was computed is written."""
        if self._written is not None:
            self._written.result()
            self._written = None
