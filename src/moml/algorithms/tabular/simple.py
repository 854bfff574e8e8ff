"""Simple members of a table model beside its networks, in numpy: mixed and logistic models, trees.

A mixed or logistic model keeps the random effects of a task. Trees keep nothing: their inputs are a
row and the summary of its task's known rows, and they predict the distance from the mean of the
known targets.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int, PyTree

from moml.algorithms.tabular.links import linked
from moml.algorithms.tabular.logistic import (
    Levels,
    LogisticModel,
    logistic_answer,
    no_levels,
    outputs,
    update_levels,
)
from moml.algorithms.tabular.mixed import Effects, MixedModel, mixed_answer, no_rows, update_effects
from moml.algorithms.tabular.structures import design_of
from moml.algorithms.tabular.trees import Trees, tree_answers
from moml.models.table import Knots
from moml.types import Batch

BOUND = 10.0  # of the targets in a summary, as in `moml.algorithms.tabular.members`

Simple = MixedModel | Trees | LogisticModel
SimpleHead = Effects | Levels | tuple[()]


def simple_start(model: Simple) -> SimpleHead:
    """What is kept of one task without known rows; leaves [1, ...]."""
    if isinstance(model, LogisticModel):
        return no_levels(model)
    return no_rows(model) if isinstance(model, MixedModel) else ()


def simple_extend(model: Simple, at: Knots, old: SimpleHead, batch: Batch) -> SimpleHead:
    """What is kept of tasks after further rows."""
    if isinstance(model, Trees):
        return ()
    design = np.stack([design_of(at, rows) for rows in np.asarray(batch.x)])
    y, mask = np.asarray(batch.y), (np.asarray(batch.mask) > 0).astype(float)
    if isinstance(model, LogisticModel):
        return update_levels(model, Levels(*old), design, y, mask)
    return update_effects(model, Effects(*old), design, linked(model.link, y.astype(float)), mask)


def simple_answers(
    model: Simple,
    at: Knots,
    head: SimpleHead,
    summary: Float[np.ndarray, "rows summary"],
    x: Float[np.ndarray, "rows features"],
) -> Float[np.ndarray, "rows ..."]:
    """Predictions of rows, each with what is kept of its task: numbers, or probabilities."""
    if isinstance(model, LogisticModel):
        return logistic_answer(model, Levels(*head).logs, design_of(at, x))
    if isinstance(model, MixedModel) and isinstance(head, Effects):
        return mixed_answer(model, head, design_of(at, x))
    return known_mean(summary) + tree_answers(model, tree_inputs(summary, x))  # type: ignore[arg-type]


def read_simple(
    name: str, fill: Callable[[PyTree], PyTree], features: int, classes: int | None, at: Knots
) -> Simple:
    """A member of the class of this name by `fill`, which puts arrays in the place of leaves."""
    numbers: tuple[type[Simple], ...] = (MixedModel, Trees)
    kinds = {kind.__name__: kind for kind in (numbers if classes is None else (LogisticModel,))}
    made: Simple = fill(kinds[name](*[np.zeros(0)] * len(kinds[name]._fields)))
    width, there = (
        1 + features + len(at.column),
        lambda part: bool(((part >= 0) & (part < width)).all()),
    )
    shapes: tuple[tuple[int, ...], ...]
    if isinstance(made, LogisticModel):
        p, out = made.fixed.size, outputs(classes or 2)
        shapes, inside = (
            ((p,), (out, p), (out,)),
            there(made.fixed) and bool((made.spread > 0).all()),
        )
    elif isinstance(made, MixedModel):
        p, q = made.fixed.size, made.random.size
        shapes = ((p,), (p,), (q,), (q, q), (), (2,), made.link.shape)
        inside = there(made.fixed) and there(made.random) and made.link.shape in ((0,), (4,))
    else:
        trees, nodes = made.feature.shape
        shapes = ((trees, nodes), (trees, nodes), (trees, nodes + 1))
        inside = bool((made.feature >= 0).all()) and (nodes + 1).bit_count() == 1
    if not inside or tuple(part.shape for part in made) != shapes:
        raise ValueError(f"the arrays of a {name} have other shapes, or columns that are not there")
    return made


def known_rows(
    summary: Float[np.ndarray, "rows summary"], out: int = 1
) -> Int[np.ndarray, " rows"]:
    """The number k of known rows from the field k / (k + 3) of a summary of `out` targets."""
    share = np.asarray(summary[:, 2 * out], float)
    return np.round(3 * share / np.maximum(1 - share, 1e-6)).astype(int)


def known_mean(summary: Float[np.ndarray, "rows summary"]) -> Float[np.ndarray, " rows"]:
    """The mean of the known targets from a summary of numbers; 0 for none."""
    k = known_rows(summary)
    mean = np.asarray(summary[:, 0], float) * (k + 1) / np.maximum(k, 1)
    return BOUND * np.arctanh(np.clip(mean / BOUND, -0.99, 0.99))


def tree_inputs(
    summary: Float[np.ndarray, "rows summary"], x: Float[np.ndarray, "rows features"]
) -> Float[np.ndarray, "rows inputs"]:
    """A row beside the summary of its task, as float32: a cut decides alike wherever it is read."""
    return np.concatenate([x, summary], axis=1).astype(np.float32)
