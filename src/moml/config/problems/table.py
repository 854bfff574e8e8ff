"""The problem `table`: tasks of rows of numbers, all of them in one place or only some."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from moml.config.problems.problem import Built, Held, Problem, classifier, regressor
from moml.data.table.frame import Table as Read
from moml.data.table.frame import read_table
from moml.data.table.target import all_numbers
from moml.errors import ConfigError, DataError, check_count
from moml.models import Model, mlp
from moml.tasks import from_rows
from moml.types import Tasks

if TYPE_CHECKING:
    from moml.config.config import Config


@dataclass(frozen=True)
class Table(Problem):
    """Tasks that own rows of a table of numbers."""

    path: str = "table.csv"
    """Parquet, CSV or Arrow, a file or a folder of them. A node of Flower may have its own."""
    n: int = 10
    """Tasks of all rows, of all nodes together; from 1."""
    task: str = "task"
    """Column with a row's task: a whole number, from 0 to n - 1."""
    features: str = "x"
    """Columns that are the input, with commas between: numbers of about the size of 1."""
    target: str = "y"
    """Column that is learned."""
    classes: int | None = None
    """Labels in the target, which are numbered from 0; from 2. By default it is a number."""
    tested: int | None = None
    """Rows of each task that are only scored on, its last; from 1. By default a fifth of them."""
    hidden: tuple[int, ...] = (40, 40)
    """Widths of the hidden layers; from 1 each, none for a linear model."""

    all_scored = True
    parted = True

    @property
    def classifies(self) -> bool:
        """Whether the target is a class."""
        return self.classes is not None

    @property
    def inputs(self) -> list[str]:
        """The columns of the input."""
        return [name.strip() for name in self.features.split(",")]

    def check(self) -> None:
        """Refuse what cannot be, beyond types and counts."""
        for name in ("path", "task", "features", "target"):
            text = getattr(self, name)
            if not text.strip() or not text.isprintable():
                raise ConfigError(f"problem.{name} must be a name in one line; got {text!r}")
        names = [*self.inputs, self.task, self.target]
        if "" in names or len(set(names)) < len(names):
            raise ConfigError(
                "problem.features must be different columns, neither task nor target; "
                f"got {self.features!r}"
            )
        if self.classes is not None:
            check_count("problem.classes", self.classes, least=2)

    def network(self) -> Model:
        """The network from the input columns to the target."""
        return mlp(len(self.inputs), *self.hidden, self.classes or 1)

    def at_node(self, data: str | None) -> "Table":
        """The problem with the node's own file: one of the server's choice is never opened."""
        if data is None:
            raise ConfigError("a table must be in data of --node-config")
        return replace(self, path=data)

    def build(self, config: "Config", held: Held = lambda task: True) -> Built:
        """What is trained."""
        train, test = table_tasks(self, held)
        return (classifier if self.classifies else regressor)(self.network(), train, test, own=test)


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
