"""Simple members of a table model beside its networks: mixed models and boosted trees, in numpy.

A mixed model keeps the random effects of a task. Trees keep nothing: their inputs are a row and the
summary of its task's known rows, and they predict the distance from the mean of the known targets.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int, PyTree

from moml.algorithms.tabular.mixed import Effects, MixedModel, mixed_answer, no_rows, update_effects
from moml.algorithms.tabular.structures import design_of
from moml.algorithms.tabular.trees import Trees, tree_answers
from moml.models.table import Knots
from moml.types import Batch

BOUND = 10.0  # of the targets in a summary, as in `moml.algorithms.tabular.members`

Simple = MixedModel | Trees
SimpleHead = Effects | tuple[()]


def simple_start(model: Simple) -> SimpleHead:
    """What is kept of one task without known rows; leaves [1, ...]."""
    return no_rows(model) if isinstance(model, MixedModel) else ()


def simple_extend(model: Simple, at: Knots, old: SimpleHead, batch: Batch) -> SimpleHead:
    """What is kept of tasks after further rows."""
    if not isinstance(model, MixedModel) or not isinstance(old, Effects):
        return ()
    design = np.stack([design_of(at, rows) for rows in np.asarray(batch.x)])
    y, mask = np.asarray(batch.y, float), (np.asarray(batch.mask) > 0).astype(float)
    return update_effects(model, old, design, y, mask)


def simple_answers(
    model: Simple,
    at: Knots,
    head: SimpleHead,
    summary: Float[np.ndarray, "rows summary"],
    x: Float[np.ndarray, "rows features"],
) -> Float[np.ndarray, " rows"]:
    """Predictions of rows, each with what is kept of its task."""
    if isinstance(model, MixedModel) and isinstance(head, Effects):
        return mixed_answer(model, head.mean, design_of(at, x))
    return known_mean(summary) + tree_answers(model, tree_inputs(summary, x))  # type: ignore[arg-type]


def read_simple(name: str, fill: Callable[[PyTree], PyTree], features: int, at: Knots) -> Simple:
    """A member of the class of this name by `fill`, which puts arrays in the place of leaves."""
    kinds: dict[str, type[MixedModel] | type[Trees]] = {"MixedModel": MixedModel, "Trees": Trees}
    made: Simple = fill(kinds[name](*[np.zeros(0)] * len(kinds[name]._fields)))
    if isinstance(made, MixedModel):
        p, q, width = made.fixed.size, made.random.size, 1 + features + len(at.column)
        shapes: tuple[tuple[int, ...], ...] = ((p,), (p,), (q,), (q, q), (), (2,))
        inside = all(((part >= 0) & (part < width)).all() for part in (made.fixed, made.random))
    else:
        trees, nodes = made.feature.shape
        shapes = ((trees, nodes), (trees, nodes), (trees, nodes + 1))
        inside = bool((made.feature >= 0).all()) and (nodes + 1).bit_count() == 1
    if not inside or tuple(part.shape for part in made) != shapes:
        raise ValueError(f"the arrays of a {name} have other shapes, or columns that are not there")
    return made


def known_rows(summary: Float[np.ndarray, "rows summary"]) -> Int[np.ndarray, " rows"]:
    """The number k of known rows from the field k / (k + 3) of a summary of numbers."""
    share = np.asarray(summary[:, 2], float)
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
