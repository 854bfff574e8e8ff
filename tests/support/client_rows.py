"""Helpers for result rows of clients, and what they should be."""

import jax.numpy as jnp
import numpy as np

from moml.runs.job import plan_of
from moml.storage.metrics import read
from moml.types import Batch


def last(folder):
    """The last score of a run."""
    return read(folder / "metrics.jsonl")[-1]["score"]


def picked(rows, **wanted):
    """Rows with these settings: of groups unless a client is asked for."""
    fits = lambda s: all(s.get(name) == value for name, value in wanted.items())
    apart = "client" in wanted
    return [r for r in rows if ("client" in r["setting"]) == apart and fits(r["setting"])]


def figure(rows, metric="test_accuracy", **wanted):
    """The figure of the one row with this metric and these settings."""
    (row,) = [row for row in picked(rows, **wanted) if row["metric"] == metric]
    assert row["values"] == [row["mean"]] and row["seeds"] == 1
    return row["mean"]


def accuracies(config, models):
    """Accuracy in percent of each client's model on all of its test images, one by one."""
    plan, found = plan_of(config), []
    for i, params in enumerate(models):
        own = plan.built.unseen.full(jnp.array([i]))
        batch = Batch(own.x[0][own.mask[0]], own.y[0][own.mask[0]])
        found.append(float(plan.built.score(params, None, batch)))
    return np.array(found)
