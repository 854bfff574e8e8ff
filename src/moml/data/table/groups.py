"""The tasks of a table: the rows of each, their order, and which tasks are held out."""

import hashlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int

from moml.data.table.frame import Table, labels
from moml.data.table.target import all_numbers
from moml.errors import ConfigError, DataError, check_count


class Groups(NamedTuple):
    """Tasks in the order of their first rows; task i owns order[start[i] : start[i + 1]]."""

    ids: tuple[str, ...]
    start: Int[np.ndarray, " tasks+1"]
    order: Int[np.ndarray, " rows"]  # row numbers, task by task, in the order inside a task

    @property
    def sizes(self) -> Int[np.ndarray, " tasks"]:
        """Rows of each task."""
        return np.diff(self.start)

    def rows(self, task: int) -> Int[np.ndarray, " _"]:
        """The rows of one task, in order."""
        return self.order[self.start[task] : self.start[task + 1]]

    def lists(self) -> list[Int[np.ndarray, " _"]]:
        """The rows of every task, in order; no copy is made."""
        return np.split(self.order, self.start[1:-1])

    def among(self, tasks: Int[np.ndarray, " some"]) -> Int[np.ndarray, " _"]:
        """All rows of some tasks, ascending: the `rows` of `learn_columns`."""
        mine = np.zeros(len(self.ids), bool)
        mine[tasks] = True
        return np.sort(self.order[np.repeat(mine, self.sizes)])


class Split(NamedTuple):
    """Numbers of tasks, ascending."""

    train: Int[np.ndarray, " some"]
    held: Int[np.ndarray, " others"]


def group(table: Table, task: str, order: str | None = None) -> Groups:
    """The tasks by a column of any kind; their rows by a column of numbers or dates, or as read.

    >>> from moml.data.table.frame import as_table
    >>> table = as_table({"shop": ["york", "bath", "york"], "day": [2, 1, 1]})
    >>> groups = group(table, "shop", order="day")
    >>> groups.ids, [rows.tolist() for rows in groups.lists()]
    (('york', 'bath'), [[2, 0], [1]])
    """
    _complete(table, task, "the task")
    codes, words = labels(table, task)
    used, first = np.unique(codes, return_index=True)
    by_first = np.argsort(first)
    number = np.empty(len(words), np.int32)
    number[used[by_first]] = np.arange(len(used))
    owner = number[codes]
    keys = [owner]
    if order is not None:
        by = table.column(order)
        if by.kind == "text":
            raise table.wrong(order, "is a text; the order must be numbers or dates")
        _complete(table, order, "the order")
        keys = [by.values, owner]
    rows = np.lexsort(keys)  # stable
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(used)))])
    return Groups(tuple(words[code] for code in used[by_first]), start, rows)


def split(groups: Groups, share: float, seed: int, least: int = 2) -> Split:
    """Hold out about a share of the tasks with `least` rows or more; the others all train.

    A task is held out if the hash of the seed and its id falls under the share. So neither other
    tasks nor further rows of a task that has `least` move it to the other part. Where a part would
    be empty, it gets the task whose hash is next to the share.

    >>> from moml.data.table.frame import as_table
    >>> groups = group(as_table({"user": [i // 3 for i in range(300)]}), "user")
    >>> [len(part) for part in split(groups, 0.25, seed=0)]
    [80, 20]
    """
    if not 0 < share < 1:
        raise ConfigError(f"the held-out share must be between 0 and 1; got {share!r}")
    check_count("seed", seed, least=0)
    able = groups.sizes >= check_count("least", least)
    if len(groups.ids) < 2:
        raise DataError(f"there is one task, {groups.ids[0]!r}: none can be held out")
    if not able.any():
        raise DataError(
            f"a task must have {least} rows to be held out, to adapt on some and predict others; "
            f"the largest of {len(groups.ids):,} tasks has {groups.sizes.max()}"
        )
    place = np.array([_place(id_, seed) for id_ in groups.ids])
    held = able & (place < share)
    if not held.any():
        held[np.argmin(np.where(able, place, 2.0))] = True
    if held.all():
        held[np.argmax(place)] = False
    return Split(np.flatnonzero(~held), np.flatnonzero(held))


def weights(table: Table, name: str) -> Float32[np.ndarray, " rows"]:
    """A column of weights: finite, none below 0, not all 0."""
    column = table.column(name)
    all_numbers(table, name, column)
    _complete(table, name, "the weight")
    for row in np.flatnonzero(column.values < 0)[:1]:
        given = column.values[row]
        raise DataError(f"{table.where(int(row), name)}: the weight {given} is below 0")
    if not column.values.any():
        raise DataError(f"{table.name}: all weights, column {name}, are 0")
    return column.values.astype(np.float32)


def _place(id_: str, seed: int) -> float:
    """The hash of a task, between 0 and 1."""
    digest = hashlib.blake2b(f"{seed}/{id_}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def _complete(table: Table, name: str, use: str) -> None:
    missing = table.column(name).missing
    if missing.any():
        more = f" ({int(missing.sum()):,} such rows)" if missing.sum() > 1 else ""
        place = table.where(int(np.argmax(missing)), name)
        raise DataError(f"{place} has no value, but it is {use}{more}")
