"""Later rows of known tasks: see `moml.algorithms.tabular.update` for the formulas."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.tabular.members import PersonalParams
from moml.algorithms.tabular.update import updated
from moml.tabular.model import TableModel, as_target, by_size
from moml.types import Batch


def extended(
    model: TableModel, own: PersonalParams, known: Any, x: Any, y: Any, groups: Sequence[Any]
) -> PersonalParams:
    """What is personal to each task after further rows groups[i], of known[i] earlier ones."""
    x, y = np.asarray(x, jnp.result_type(float)), as_target(model.shape, y)
    update, known = updated(model.shape, tuple(model.metas)), np.asarray(known, x.dtype)

    def go_on(some: np.ndarray, batch: Batch) -> PersonalParams:
        at = np.concatenate([some, np.repeat(some[:1], len(batch.mask) - some.size)])
        kept = jax.tree.map(lambda leaf: leaf[at], own)
        return update(model.knots, model.metas, kept, known[at], batch)

    return by_size(x, y, groups, go_on)
