"""The demonstration: sine regression at K = 1, and what memory and exact curvature are worth."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.parts.schedule import decay_at
from moml.paper.sine.score import FINAL, LOSS, NET, SHOTS, STEPS, TESTED_WITH, unseen_error
from moml.paper.sine.score import TEST as ADAPT
from moml.tasks import sine, unseen_sine
from moml.training.sweep import Sweep, mean_of_seeds, sweep
from moml.types import Batch

K = 1


class Entry(NamedTuple):
    """A line of the comparison, each method at a good step size of its own."""

    label: str
    method: str
    eta: float
    beta: float | None = None  # None: the method's own
    options: dict[str, Any] = {}


ENTRIES = (
    Entry("untrained", "maml", 0.005),
    Entry("maml", "maml", 0.005),
    Entry("moml-v1", "moml-v1", 0.005, 0.1),
    Entry("moml", "moml", 0.005, options={"shots": SHOTS, "test_steps": STEPS}),
)


class Outcome(NamedTuple):
    """A line's result; `curve` holds (iterations, error of each seed over the unseen tasks)."""

    label: str
    run: Sweep
    curve: list[tuple[int, np.ndarray]]
    errors: np.ndarray
    seconds: float


class Example(NamedTuple):
    """One unseen task to look at: the wave, and the few samples of it that are adapted on."""

    x: np.ndarray
    y: np.ndarray
    support: Batch


def run_entry(entry: Entry, *, iterations: int, seeds: int, progress: bool) -> Outcome:
    """Train a line with all its seeds at once, scoring on unseen tasks on the way."""
    errors = lambda meta: np.asarray(unseen_error(FINAL)(meta))
    curve: list[tuple[int, np.ndarray]] = []
    began = time.monotonic()
    done = sweep(
        entry.method,
        LOSS,
        NET.init,
        sine(),
        seeds=seeds,
        grid={"eta": [entry.eta]} | ({} if entry.beta is None else {"beta": [entry.beta]}),
        iterations=0 if entry.label == "untrained" else iterations,
        schedule=decay_at(max(1, iterations * 3 // 4)),
        chunk=max(1, iterations // 20),
        on_chunk=lambda step, meta, hyper: curve.append((step, errors(meta))),
        progress=progress,
        k=K,
        **entry.options,
    )
    seconds = time.monotonic() - began
    gone = lambda step: done.lost & (done.lost_at < step)
    curve = [(step, np.where(gone(step), np.nan, error)) for step, error in curve]
    return Outcome(entry.label, done, curve, errors(done.meta), seconds)


def example_task() -> Example:
    """An unseen wave."""
    task = unseen_sine(jax.random.key(4), 1)
    first = jnp.zeros(1, jnp.int32)
    dense, few = (task.draw(jax.random.key(i), first, size) for i, size in ((5, 400), (6, SHOTS)))
    order = np.argsort(np.asarray(dense.x[0, :, 0]))
    support = jax.tree.map(lambda x: x[0], few)
    return Example(np.asarray(dense.x[0])[order], np.asarray(dense.y[0])[order], support)


def fitted(outcome: Outcome, example: Example) -> np.ndarray:
    """What seed 0 predicts on the example task after adapting to it."""

    def predict(meta: Any, hyper: Any) -> Any:
        mine = ADAPT.merge(meta, ADAPT.apply(meta, example.support, TESTED_WITH))
        return NET.predict(mine, jnp.asarray(example.x))[:, 0]

    return np.asarray(outcome.run.each(predict))[0]


def row_of(outcome: Outcome) -> dict[str, Any]:
    """A result row, in the one form that all tables share."""
    run = outcome.run
    mean, std = mean_of_seeds(outcome.errors, run.lost)
    iterations = outcome.curve[-1][0] if outcome.curve else 0
    return {
        "table": "sine",
        "dataset": "sine",
        "setting": {"k": K}
        | {name: float(run.hyper._asdict().get(name, [1.0])[0]) for name in ("beta", "eta")},
        "method": outcome.label,
        "protocol": "strict",
        "metric": "test_error",
        "mean": mean,
        "std": std,
        "seeds": len(run.settings),
        "lost": int(run.lost.sum()),
        "paper_mean": None,
        "paper_std": None,
        "samples": run.samples,
        "iterations": iterations,
        "seconds": round(outcome.seconds, 2),
    }
