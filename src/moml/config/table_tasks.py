"""The problem `table`: tasks of rows of numbers, all of them in one place or only some."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from moml.config.problems import Table
from moml.data.table.frame import Table as Read
from moml.data.table.frame import read_table
from moml.data.table.target import all_numbers
from moml.errors import DataError
from moml.tasks import from_rows
from moml.types import Tasks

Held = Callable[[int], bool]  # whether the rows of a task are here


def table_tasks(p: Table, held: Held = lambda task: True) -> tuple[Tasks, Tasks]:
    """The rows to train on and those to score on; tasks that are not held have none of either."""
    table = read_table(p.path, columns=[*p.inputs, p.task, p.target])
    x = np.stack([_numbers(table, name) for name in p.inputs], axis=1)
    y = _numbers(table, p.target)[:, None]
    if p.classes is not None:
        y = _whole(table, p.target, p.classes).astype(np.int32)
    owner = _whole(table, p.task, p.n)
    mine = [np.flatnonzero(owner == task) for task in range(p.n)]
    for task in filter(held, range(p.n)):
        if len(mine[task]) < 2:
            words = f"{len(mine[task])} rows of task {task}; it needs 2, to train and to score on"
            raise DataError(f"{table.name} has {words}")
    last = [-(-len(rows) // 5) if p.tested is None else p.tested for rows in mine]
    for task in filter(held, range(p.n)):
        if last[task] >= len(mine[task]):
            words = f"problem.tested = {last[task]} leaves nothing of task {task} to train on"
            raise DataError(f"{table.name} has {len(mine[task])} rows of it: {words}")

    def part(cut: Callable[[int], slice]) -> Tasks:
        here = {task: mine[task][cut(last[task])] for task in filter(held, range(p.n))}
        nothing = np.zeros(1, int)  # never drawn
        tasks = from_rows(x, y, [here.get(task, nothing) for task in range(p.n)], alike=False)
        return replace(tasks, least=min(len(rows) for rows in here.values()))

    return part(lambda k: slice(None, -k)), part(lambda k: slice(-k, None))


def _numbers(table: Read, name: str) -> np.ndarray:
    column = table.column(name)
    all_numbers(table, name, column)
    for row in np.flatnonzero(column.missing)[:1]:
        raise DataError(f"{table.where(int(row), name)}: there is no value")
    return np.asarray(column.values, float)


def _whole(table: Read, name: str, below: int) -> np.ndarray:
    values = _numbers(table, name)
    bad = (values != np.floor(values)) | (values < 0) | (values >= below)
    for row in np.flatnonzero(bad)[:1]:
        allowed = f"a whole number from 0 to {below - 1}"
        raise DataError(f"{table.where(int(row), name)}: {values[row]:g} is not {allowed}")
    return values.astype(int)
