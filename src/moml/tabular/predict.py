"""Predictions for rows of any tasks, each from its task's personal parameters."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import jax
import numpy as np

from moml.algorithms.tabular.members import PersonalParams
from moml.data.table.doubts import respelled
from moml.data.table.frame import Frame, columns_of
from moml.data.table.groups import Groups
from moml.data.table.target import Target
from moml.data.table.write import extend_frame
from moml.errors import MomlWarning
from moml.tabular.model import TableModel
from moml.tabular.rows import Rows
from moml.tabular.store import BLOCK, Block, TaskStore
from moml.training.progress import bar


class Predicted(NamedTuple):
    """Columns of predictions for the rows of a table, and remarks for the user."""

    columns: dict[str, np.ndarray]
    remarks: list[str]


def adapted(
    model: TableModel, store: TaskStore, ids: Sequence[str], later: Rows | None, progress: bool
) -> Iterator[Block]:
    """Personal parameters of tasks and the number of rows of each, a block at a time.

    Kept parameters are updated with the task's `later` rows, where there are any.
    """
    start = model.start()
    further = {} if later is None else {id_: i for i, id_ in enumerate(later.groups.ids)}
    with bar("tasks", len(ids), shown=progress) as advance:
        for first in range(0, len(ids), BLOCK):
            some = ids[first : first + BLOCK]
            rows = np.zeros(len(some), int)
            personal = jax.tree.map(lambda leaf, n=rows.size: np.repeat(leaf, n, axis=0), start)
            place = np.array([store.places.get(id_, -1) for id_ in some])
            old = np.flatnonzero(place >= 0)
            if len(old):
                _put(personal, old, store.take(place[old]))
                rows[old] = store.rows[place[old]]
            more = np.array([further.get(id_, -1) for id_ in some])
            new = np.flatnonzero(more >= 0)
            if later is not None and len(new):
                lists = [later.groups.rows(i) for i in more[new].tolist()]
                before = jax.tree.map(lambda leaf, new=new: leaf[new], personal)
                _put(personal, new, model.extend(before, rows[new], later.x, later.y, lists))
                rows[new] += [len(some) for some in lists]
            yield personal, rows
            advance(first + len(some))


def _put(personal: PersonalParams, at: np.ndarray, some: PersonalParams) -> None:
    for leaf, new in zip(jax.tree.leaves(personal), jax.tree.leaves(some), strict=True):
        leaf[at] = new


def predict_rows(
    models: Mapping[str, TableModel],
    cold: str,
    store: TaskStore,
    groups: Groups,
    x: np.ndarray,
    later: Rows | None,
    progress: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Every row's prediction as the model gives it, the known rows of its task, and its spread.

    And remarks on tasks without known rows, and on the rows of `later`.
    """
    model = models["personal"]
    classes = model.shape.classes
    given = np.empty((len(x), *([] if classes is None else [classes])))
    known, spread = np.empty(len(x), int), np.empty(len(x))
    first = 0
    for personal, rows in adapted(model, store, groups.ids, later, progress):
        tasks = slice(first, first + len(rows))
        at = groups.order[groups.start[first] : groups.start[first + len(rows)]]
        which = np.repeat(np.arange(len(rows)), groups.sizes[tasks])
        given[at], spread[at] = model.answers_and_spread(personal, which, x[at])
        known[at] = rows[which]
        first += len(rows)
    lacking = np.flatnonzero(known == 0)
    if len(lacking) and cold != "personal":
        given[lacking], spread[lacking] = models[cold].unadapted(x[lacking]), 0
    return given, known, spread, _without_rows(groups, known, store, later)


def _without_rows(
    groups: Groups, known: np.ndarray, store: TaskStore, later: Rows | None
) -> list[str]:
    """Remarks on tasks without known rows, and on the rows of `later`."""
    owner = np.repeat(np.arange(len(groups.ids)), groups.sizes)
    lacking = owner[known[groups.order] == 0]
    new, lines = np.unique(lacking), list[str]()
    if len(new):
        tasks, rows = f"{len(new):,} of {len(groups.ids):,}", f"{len(lacking):,} of {len(owner):,}"
        lines.append(f"no known rows of {tasks} tasks ({rows} rows): predicted without adaptation")
    if later is not None:
        lines += [f"to adapt on: {line}" for line in remarks_on(later, store)]
    ids = {*store.places, *(later.groups.ids if later else ())} if len(new) else ()
    return [*lines, *respelled([groups.ids[i] for i in new], ids)]


def remarks_on(later: Rows, store: TaskStore) -> list[str]:
    """Values that training has not seen, and ids that differ from known ones in spelling only."""
    return [*later.remarks, *respelled(later.groups.ids, store.places)]


def labelled(target: Target, given: np.ndarray) -> dict[str, np.ndarray]:
    """Predictions in the unit of the target, or as classes with their probabilities."""
    if not target.classes:
        return {"prediction": target.unscale(given)}
    named = {f"probability_{name}": given[:, i] for i, name in enumerate(target.classes)}
    return {"prediction": target.labels[given.argmax(axis=1)], **named}


Run = TypeVar("Run")
More = ParamSpec("More")
Predict = Callable[Concatenate[Run, Any, More], Predicted]


def with_frames(predict: Predict[Run, More]) -> Callable[Concatenate[Run, Any, More], Any]:
    """The same method, of a frame the frame with the predictions; remarks are then warnings."""

    @wraps(predict)
    def predicted(run: Run, data: Any, *args: More.args, **how: More.kwargs) -> Any:
        if not isinstance(data, Frame):
            return predict(run, data, *args, **how)
        made = predict(run, columns_of(data), *args, **how)
        for remark in made.remarks:
            warnings.warn(remark, MomlWarning, stacklevel=2)
        return extend_frame(data, made.columns)

    return predicted
