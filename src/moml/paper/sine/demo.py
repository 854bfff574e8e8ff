"""The demonstration: sine regression at K = 1, and what memory and exact curvature are worth."""

from typing import Any

import numpy as np

from moml.algorithms.parts.schedule import decay_at
from moml.paper.cells import Grid, Training, size_of, train
from moml.paper.sine.score import FINAL, LOSS, NET, SHOTS, STEPS, unseen_error
from moml.tasks import sine
from moml.training.rows import result_row
from moml.types import Record

K = 1
ENTRIES: dict[str, tuple[str, Grid, dict[str, Any]]] = {  # method, good step sizes, options
    "untrained": ("maml", {"eta": [0.005]}, {}),
    "maml": ("maml", {"eta": [0.005]}, {}),
    "moml-v1": ("moml-v1", {"eta": [0.005], "beta": [0.1]}, {}),
    "moml": ("moml", {"eta": [0.005]}, {"shots": SHOTS, "test_steps": STEPS}),
}


def run_entry(
    label: str, *, iterations: int, seeds: int, progress: bool
) -> tuple[Training, Record]:
    """Train a line with all its seeds at once, scored on unseen tasks; its training and its row."""
    method, grid, options = ENTRIES[label]
    error = lambda meta: np.asarray(unseen_error(FINAL)(meta))
    done = train(
        method, LOSS, NET.init, sine(), seeds=seeds, grid=grid,
        iterations=0 if label == "untrained" else iterations,
        schedule=decay_at(max(1, iterations * 3 // 4)), chunk=max(1, iterations // 20),
        score=lambda meta, hyper: error(meta), progress=progress, k=K, **options,
    )  # fmt: skip
    run = done.run
    used = {name: size_of(run, name) for name in ("beta", "eta")}
    row = result_row(
        table="sine", dataset="sine", setting={"k": K, **used}, method=label, metric="test_error",
        values=error(run.meta), lost=run.lost, samples=run.samples,
        iterations=done.curve[-1][0] if done.curve else 0, seconds=done.seconds,
    )  # fmt: skip
    return done, row
