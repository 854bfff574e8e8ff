"""The demonstration: sine regression at K = 1, and what memory and exact curvature are worth."""

from typing import NamedTuple

import numpy as np

from moml.algorithms.parts.schedule import decay_at
from moml.paper.cells import Training, size_of, train
from moml.paper.sine.score import FINAL, LOSS, NET, SHOTS, STEPS, unseen_error
from moml.tasks import sine
from moml.training.rows import result_row
from moml.types import Record

K = 1


class Entry(NamedTuple):
    """A line of the comparison, each method at a good step size of its own."""

    label: str
    method: str
    eta: float
    beta: float | None = None  # None: the method's default
    options: dict[str, int] = {}


ENTRIES = (
    Entry("untrained", "maml", 0.005),
    Entry("maml", "maml", 0.005),
    Entry("moml-v1", "moml-v1", 0.005, 0.1),
    Entry("moml", "moml", 0.005, options={"shots": SHOTS, "test_steps": STEPS}),
)


def run_entry(entry: Entry, *, iterations: int, seeds: int, progress: bool) -> Training:
    """Train a line with all its seeds at once, scoring on unseen tasks on the way."""
    return train(
        entry.method, LOSS, NET.init, sine(), seeds=seeds,
        grid={"eta": [entry.eta]} | ({} if entry.beta is None else {"beta": [entry.beta]}),
        iterations=0 if entry.label == "untrained" else iterations,
        schedule=decay_at(max(1, iterations * 3 // 4)), chunk=max(1, iterations // 20),
        score=lambda meta, hyper: np.asarray(unseen_error(FINAL)(meta)), progress=progress,
        k=K, **entry.options,
    )  # fmt: skip


def row_of(entry: Entry, done: Training) -> Record:
    """The result row of a line."""
    run = done.run
    used = {name: size_of(run, name) for name in ("beta", "eta")}
    return result_row(
        table="sine", dataset="sine", setting={"k": K, **used}, method=entry.label,
        metric="test_error", values=np.asarray(unseen_error(FINAL)(run.meta)), lost=run.lost,
        samples=run.samples, iterations=done.curve[-1][0] if done.curve else 0,
        seconds=done.seconds,
    )  # fmt: skip
