"""A user's own table, from file to personal predictions: what the commands call."""

from moml.errors import DataError
from moml.tabular.predict import Predicted, adapt_table, predict_file, predict_table
from moml.tabular.read import load_table_run
from moml.tabular.score import Score, score_tasks
from moml.tabular.source import Source, rows_of
from moml.tabular.store import TableRun, save_table_run
from moml.tabular.train import train_table

__all__ = [
    "Predicted",
    "TableRun",
    "adapt_table",
    "evaluate_table",
    "load_table_run",
    "predict_file",
    "predict_table",
    "save_table_run",
    "train_table",
]


def evaluate_table(
    run: TableRun, data: Source | None = None, *, progress: bool = False
) -> list[Score]:
    """The run's own scores, or new ones on the tasks of a table that training did not see."""
    if data is None:
        return run.evaluation
    given, trained = rows_of(run, data, weighted=True), set(run.about["trained"])
    sizes = given.groups.sizes
    able = [i for i, id_ in enumerate(given.groups.ids) if sizes[i] > 1 and id_ not in trained]
    if not able:
        raise DataError(
            f"none of the {len(sizes):,} tasks can be scored: that takes 2 rows of a task that "
            "training has not seen"
        )
    scored = score_tasks(
        run.models, run.about["cold"], run.rivals, run.columns.target, given.x, given.y,
        [given.groups.rows(i) for i in able],
        weights=given.weights, seed=run.about["seed"], progress=progress,
    )  # fmt: skip
    return scored.rows
