"""`TableRun`: a trained table, in memory or in a folder; `load` opens any run."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import numpy as np

from moml.algorithms.tabular.intervals import around, bounds, tasks_lacking
from moml.algorithms.tabular.rivals import Rivals
from moml.config.plugins import import_plugins
from moml.config.user_function import load_build
from moml.data.table.cells import Cells, cells
from moml.data.table.columns import Columns
from moml.data.table.groups import group, weights
from moml.errors import ConfigError, DataError
from moml.runs.runs import load as load_learner
from moml.tabular import store
from moml.tabular.model import TableModel
from moml.tabular.model_arrays import read_model, write_run
from moml.tabular.predict import Predicted, adapted, labelled, predict_rows, remarks_on, with_frames
from moml.tabular.rows import Rows, Source, output, read
from moml.tabular.score import score_tasks
from moml.training.fit import Learner
from moml.types import Record


@dataclass(frozen=True)
class TableRun:
    """A trained table, as `moml.train_table` returns it and `moml.load` opens it."""

    about: Record = field(repr=False)  # columns, settings, ids: the content of table.json
    columns: Columns = field(repr=False)
    models: dict[str, TableModel] = field(repr=False)  # "personal" and "pooled"
    rivals: Rivals = field(repr=False)
    tasks: store.TaskStore = field(repr=False)  # the tasks that it knows
    residuals: dict[int, np.ndarray] = field(repr=False)
    evaluation: list[Record] = field(repr=False)  # scores on the held-out tasks
    folder: Path | None = None  # None: in memory

    @property
    def model(self) -> TableModel:
        """The model that adapts."""
        return self.models["personal"]

    @property
    def cells(self) -> Cells:
        """How numbers and missing values are written in texts."""
        return cells(**self.about.get("settings", {}).get("cells", {}))

    def reading(self, **form: str | Sequence[str] | None) -> "TableRun":
        """The run, to read tables with another `decimal`, `thousands`, `units` or `na`."""
        wanted = cells(**(self.cells._asdict() | form))._asdict()
        settings = self.about.get("settings", {}) | {"cells": wanted}
        return replace(self, about=self.about | {"settings": settings})

    @with_frames
    def predict(
        self,
        data: Source,
        out: str | os.PathLike[str] | None = None,
        *,
        adapt_on: Source | None = None,
        interval: float | None = None,
        safe: bool = False,
        progress: bool = False,
    ) -> Predicted:
        """Predict rows of any tasks.

        A task that the run knows is predicted by its personal parameters; a task without known
        rows by the model that is best for such tasks.

        Parameters
        ----------
        data
            Table with the rows; the target is not needed.
        out
            File for the columns of `data` with the predictions beside them.
        adapt_on
            Table with targets to adapt to first: rows of new tasks, or later rows of known ones.
        interval
            The share of targets that `lower` and `upper` should enclose, such as 0.9.
        safe
            Put ' before texts in a CSV that a spreadsheet would take as formulas, such as =1+1.
        progress
            Show progress.

        Returns
        -------
        Predicted with `columns`, in the order of the rows: `prediction`, of classes
        `probability_<class>`, with an interval `lower` and `upper`; and `remarks` on the rows.
        Of a polars or pandas frame: the frame with these columns, and the remarks as warnings.
        """
        task, target = self.about["task"], self.columns.target
        if interval is not None:
            bounds(self.residuals, interval)
        text = [task, *self.columns.text]
        names = ["prediction", *(f"probability_{name}" for name in target.classes)]
        names += [] if interval is None else ["lower", "upper"]
        write = output(data, out, names, text, safe, self.cells)
        table = read(data, [*self.columns.names, task], text, self.cells)
        groups, x = group(table, task), self.columns.encode(table)
        remarks = self.columns.remarks(table)
        del table
        later = None if adapt_on is None else self.rows(adapt_on)
        given, known, spread, more = predict_rows(
            self.models, self.about["cold"], self.tasks, groups, x, later, progress
        )
        new = labelled(target, given)
        if interval is not None:
            new["lower"], new["upper"] = around(
                new["prediction"], known, spread * target.scale.std, self.residuals, interval
            )
            if (lack := tasks_lacking(self.residuals, interval)) is not None:
                needs = f"needs {lack[0]:,} tasks to score on, this run has {lack[1]:,}"
                more.append(f"an interval of {interval:g} {needs}: lower and upper are infinite")
        write(new)
        return Predicted(new, [*remarks, *more])

    def adapt(
        self,
        data: Source,
        out: str | os.PathLike[str] | None = None,
        *,
        progress: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> "TableRun":
        """Adapt to the tasks of a table.

        Parameters
        ----------
        data
            Table with targets: rows of new tasks, or later rows of known ones.
        out
            A new folder for the result, with one file per task; None: in memory.
        progress
            Show progress.
        say
            Called with remarks on the rows.

        Returns
        -------
        A run that knows the tasks of `data`; this one does not change.
        """
        out = None if out is None else store.free_place(out)
        later = self.rows(data)
        for line in remarks_on(later, self.tasks):
            say(line)
        ids = later.groups.ids
        blocks = adapted(self.model, self.tasks, ids, later, progress)
        return self.with_tasks(ids, blocks, out, each=True)

    def evaluate(
        self,
        data: Source | None = None,
        *,
        progress: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> list[Record]:
        """Score the run on tasks that training has not seen.

        Parameters
        ----------
        data
            Table with targets; None returns the scores on the tasks that training held out.
        progress
            Show progress.
        say
            Called with remarks on the rows.

        Returns
        -------
        One row for each model, number of known rows and metric.
        """
        if data is None:
            return self.evaluation
        given, trained = self.rows(data, weighted=True), set(self.about["trained"])
        for line in remarks_on(given, self.tasks):
            say(line)
        sizes, ids = given.groups.sizes, given.groups.ids
        able = [i for i, id_ in enumerate(ids) if sizes[i] > 1 and id_ not in trained]
        if not able:
            wanted = "scores need tasks of 2 rows or more that training has not seen"
            raise DataError(f"{wanted}; got {len(sizes):,} tasks, none of them such")
        return score_tasks(
            self.models, self.about["cold"], self.rivals, self.columns.target, given, able,
            seed=self.about["seed"], progress=progress,
        ).rows  # fmt: skip

    def save(self, out: str | os.PathLike[str]) -> "TableRun":
        """Write the run to a new folder, as the command `moml train --data` does.

        Parameters
        ----------
        out
            The folder; it must not exist.

        Returns
        -------
        The same run, opened from that folder.
        """
        ids, no_rows = [*self.tasks.places], jax.tree.map(lambda leaf: leaf[:0], self.model.start())
        blocks = self.tasks.blocks() if ids else iter([(no_rows, np.zeros(0, int))])
        return self.with_tasks(ids, blocks, store.free_place(out))

    def rows(self, data: Source, *, weighted: bool = False) -> Rows:
        """Encode a table that has the target, and the order and weight where the run has them."""
        about, columns = self.about, self.columns
        weight = about["weight"] if weighted else None
        named = [about["task"], about["target"], about["order"], weight]
        wanted = list(dict.fromkeys([*columns.names, *(name for name in named if name)]))
        table = read(data, wanted, [about["task"], *columns.text], self.cells)
        groups = group(table, about["task"], about["order"])
        weigh = None if weight is None else weights(table, weight)
        x, y = columns.encode(table), columns.target(table)
        return Rows(groups, x, y, weigh, columns.remarks(table))

    def with_tasks(
        self,
        ids: Sequence[str],
        blocks: Iterator[store.Block],
        out: Path | None,
        each: bool = False,
    ) -> "TableRun":
        """The run with these tasks instead: in memory, or opened from the new folder `out`."""
        if out is None:
            return replace(self, folder=None, tasks=store.in_memory(ids, blocks))
        content = self.about | {"columns": self.columns.to_json(), "rivals": self.rivals._asdict()}
        with store.building(out) as folder:
            write_run(folder, content, self.models, self.residuals, self.evaluation)
            (store.write_each_task if each else store.write_tasks)(folder, ids, blocks)
        return load_table_run(out, self.about["model"])


def load(
    folder: str | os.PathLike[str],
    *,
    best: bool = False,
    model: str | None = None,
    plugins: Sequence[str] = (),
) -> Learner | TableRun:
    """Open a run.

    Parameters
    ----------
    folder
        Folder of a training run, or of a table's run.
    best
        Of a training run, the best checkpoint instead of the newest one.
    model
        Of a table's run with a network of your own, MODULE:FUNCTION; no module is imported because
        a file names it.
    plugins
        Modules to import first: those that registered the run's own problem, method or model.

    Returns
    -------
    A `Learner` for a training run, a `TableRun` for a table's run; every byte is checked.

    >>> load("nowhere")
    Traceback (most recent call last):
        ...
    moml.errors.ConfigError: nowhere holds no run: there is no run.json in it
    """
    import_plugins(plugins)
    if (Path(folder) / "table.json").exists():
        return load_table_run(folder, model)
    return load_learner(Path(folder), best=best)


def load_table_run(folder: str | os.PathLike[str], model: str | None = None) -> TableRun:
    """Open a table's run, or a folder of `moml adapt`; see `load`."""
    folder = Path(folder)
    about = store.read_about(folder)
    if (about["model"] is None) != (model is None):
        has = "moml's own network" if about["model"] is None else f"the network {about['model']}"
        raise ConfigError(f"{folder} has {has}; got {model or 'no --model'}")
    build = None if model is None else load_build(model)
    with store.refused(folder):
        arrays = store.read_finite(folder / "model.safetensors")
        models = {n: read_model(n, about[n], arrays, build) for n in ("personal", "pooled")}
        residuals = store.read_finite(folder / "residuals.safetensors")
        return TableRun(
            about,
            Columns.from_json(about["columns"]),
            models,
            Rivals(**about["rivals"]),
            store.read_tasks(folder, models["personal"]),
            {int(k): store.three_columns(k, some) for k, some in residuals.items()},
            store.read_json(folder / "evaluation.json"),
            folder,
        )
