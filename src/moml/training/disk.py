"""Training with the memories on disk: a stretch loads the rows of the tasks that it visits.

While a piece of a stretch is computed, a thread writes the rows of the piece before and reads those
of the next. A row that two successive pieces visit is handed over in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from moml.algorithms.parts.memory import parted, whole
from moml.algorithms.parts.schedule import Schedule, constant
from moml.runtime import partial_store, simulate
from moml.storage.rows_on_disk import RowsOnDisk
from moml.training.compose import fill_key
from moml.training.execution import Execution
from moml.training.progress import bar
from moml.types import Algorithm, Hyper, Info, Key, Params, Record, State, Tasks

BUDGET = 64 << 20  # bytes of rows that a piece may load
PADDING = np.iinfo(np.int32).max  # the id of rows that are padding


class Rows(NamedTuple):
    """The sealed rows of some tasks, ids ascending."""

    ids: np.ndarray
    rows: np.ndarray


def split(state: State) -> tuple[State, PyTree]:
    """A state without its rows, and the rows."""
    common, rows = parted(state.memory)
    return state._replace(memory=common), rows


class OnDisk(Execution):
    """Stretches of `length` of `steps` steps over the rows of a store.

    The carry, which is also what a checkpoint holds, is the state without its rows.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        tasks: Tasks,
        store: RowsOnDisk,
        params: Params,
        key: Key,
        hyper: Hyper,
        *,
        steps: int,
        length: int,
        schedule: Schedule = constant,
        eager: int = 0,  # samples that each memory is filled from at the start
    ):
        first = jax.jit(lambda params, hyper: split(algorithm.init(params, hyper))[0])
        super().__init__(lambda: first(params, hyper), self.advance)
        self.store, self._steps, self._length, self._eager = store, steps, length, eager
        self._algorithm, self._tasks, self._key, self._hyper = algorithm, tasks, key, hyper
        self._tree = jax.tree.structure(split(jax.eval_shape(algorithm.init, params, hyper))[1])
        self._program = partial_store.program(algorithm, schedule)
        one = jax.eval_shape(lambda: simulate.drawn(algorithm.needs, tasks, key, 0, 1))
        self._each = sum(ids.size for ids in simulate.ids_of(one))  # tasks that a step visits
        fits = max(1, BUDGET // (self._each * store.layout.width))
        self._most = length if store.n * store.layout.width <= BUDGET else min(length, fits)
        self._ahead: tuple[tuple[int, int], Future[Rows]] | None = None
        self._written: Future[None] | None = None
        self._left: Rows | None = None  # what the last piece left
        self._pool = ThreadPoolExecutor(1, "rows")

    def first(self, *, progress: bool = False) -> State:
        carry = super().first()
        self.store.create()
        if self._eager:
            self._fill(carry, progress)
        return carry

    def load(self, saved: State, step: int) -> State:
        self.store.back_to(step)
        return super().load(saved, step)

    def advance(self, carry: State, begin: int, size: int) -> tuple[State, Info]:
        infos = []
        run = simulate.advance(self._program, self._tasks, self._key, self._hyper, self._most)
        for start, count in self.pieces(begin, size):
            piece = self._take(start, count)
            state = self._padded(carry, piece, min(self.store.n, self._most * self._each))
            self._look_ahead(start + count, begin + size)
            state, info = run(state, start, count)
            infos.append(info)
            carry, rows = split(state.state)
            self._put(piece, self._packed(rows, piece.ids))
        return carry, jax.tree.map(lambda *parts: np.concatenate(parts), *infos)

    def stores(self, carry: State) -> Iterator[tuple[np.ndarray, State]]:
        self.settle()
        yield from self._stores(carry, lambda ids: self._pool.submit(self.store.read, ids).result())

    def saved_stores(self, saved: State, notes: Record) -> Iterator[tuple[np.ndarray, State]]:
        """The `stores` at a checkpoint: what it holds, and its notes; no file is changed."""
        carry = Execution.load(self, saved, 0)
        yield from self._stores(carry, lambda ids: self.store.read_saved(notes, ids))

    def _stores(
        self, carry: State, read: Callable[[np.ndarray], np.ndarray]
    ) -> Iterator[tuple[np.ndarray, State]]:
        size = max(1, min(self.store.n, BUDGET // self.store.layout.width))
        for first in range(0, self.store.n, size):
            ids = np.arange(first, min(first + size, self.store.n))
            some = self._padded(carry, Rows(ids, read(ids)), size)
            yield np.pad(ids, (0, size - len(ids)), mode="edge"), some.state.memory

    def snapshot(self, carry: State, step: int, kept: Sequence[int]) -> tuple[State, Record]:
        self.settle()
        return carry, self.store.saving(step, kept)

    def verify(self, notes: Record) -> str | None:
        return self.store.verify(notes)

    def check_new(self) -> None:
        self.store.check_new()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self.store.close()

    def pieces(self, begin: int, size: int) -> Iterator[tuple[int, int]]:
        """First step and number of steps of each piece of a stretch."""
        for start in range(begin, begin + size, self._most):
            yield start, min(self._most, begin + size - start)

    def settle(self) -> None:
        """Wait until all that was computed is written."""
        if self._written is not None:
            self._written.result()
            self._written = None

    def _fill(self, carry: State, progress: bool) -> None:
        fill = jax.jit(partial_store.fill(self._algorithm, self._eager))
        key, n = fill_key(self._key), self.store.n
        with bar("filling memories", n, shown=progress) as advance:
            for first in range(0, n, simulate.FILLED):
                ids = np.arange(first, min(first + simulate.FILLED, n))
                empty = Rows(ids, np.zeros((len(ids), self.store.layout.stride), np.uint8))
                full = fill(self._padded(carry, empty, len(ids)), self._tasks, key, self._hyper)
                self.store.write(ids, self._packed(split(full.state)[1], ids), empty.rows)
                advance(first + len(ids))

    def _padded(self, carry: State, some: Rows, count: int) -> partial_store.PartialStore:
        """A state with the rows of some tasks, padded to `count` rows."""
        leaves = self.store.layout.unpack(some.rows, count)
        store = whole(carry.memory, jax.tree.unflatten(self._tree, leaves))
        ids = np.full(count, PADDING, np.int32)
        ids[: len(some.ids)] = some.ids
        state = jax.tree.map(jnp.asarray, carry._replace(memory=store))
        return partial_store.PartialStore(state, jnp.asarray(ids))

    def _packed(self, rows: PyTree, ids: np.ndarray) -> np.ndarray:
        """The rows of these tasks, the first ones, sealed."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(rows)]
        return self.store.pack(leaves, ids)

    def _begin_to_read(self, start: int, count: int) -> "Future[Rows]":
        drawn = self._algorithm, self._tasks, self._key, start, count, self._most
        ids = np.unique(partial_store.visited(*drawn)).astype(np.int64)
        return self._pool.submit(lambda: Rows(ids, self.store.read(ids)))

    def _look_ahead(self, start: int, end: int) -> None:
        """Begin to read the piece at `start`; `end` is the end of the current stretch."""
        size = end - start or min(self._length, self._steps - start)
        if size > 0:
            at = next(self.pieces(start, size))
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
        """Begin to write what a piece left, once the write before is done."""
        self.settle()
        self._left = Rows(old.ids, new)
        self._written = self._pool.submit(self.store.write, old.ids, new, old.rows)
