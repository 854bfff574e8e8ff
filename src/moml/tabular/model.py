"""A trained table model: from the rows that are known of a task to its predictions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.tabular.members import BOUND, PersonalParams, Shape, parts
from moml.algorithms.tabular.summary import Summed
from moml.models.table import Knots
from moml.tasks.clients import buckets
from moml.types import Batch, Hyper, Meta

CHUNK = 1024  # tasks or rows side by side
_HYPER = Hyper(eta=0.0)  # members have learned all that an adaptation asks for


@dataclass(frozen=True)
class TableModel:
    """Members of some kinds, averaged. All of it is plain arrays and numbers."""

    shape: Shape
    knots: Knots
    metas: dict[str, Meta]  # kind -> leaves [members, ...]
    shots: int
    held_out: tuple[int, ...] = ()  # numbers of the groups that training did not see
    scores: tuple[dict[str, Any], ...] = ()  # what was tried, and what of it is averaged

    def personal(self, x: Any, y: Any, groups: Sequence[Any]) -> PersonalParams:
        """What is personal to each group, from its rows groups[i] of x and y; there may be none."""
        x, y = as_input(x), as_target(self.shape, y)
        adapt = _adapt(self.shape, tuple(self.metas))
        return by_size(x, y, groups, lambda some, batch: adapt(self.knots, self.metas, batch))

    def answers(self, own: PersonalParams, which: Any, x: Any) -> np.ndarray:
        """Predictions for rows x: row i belongs to task which[i] of `own`.

        In units of y [rows], or the probabilities of the classes [rows, classes].
        """
        x, which = as_input(x), np.asarray(which, int)
        out = []
        for at in range(0, len(x), CHUNK):
            mine = jax.tree.map(lambda leaf, a=at: leaf[which[a : a + CHUNK]], own)
            rows = x[at : at + CHUNK]
            n = len(rows)
            fill = lambda leaf, n=n: np.concatenate(
                [leaf, np.repeat(leaf[:1], power(n) - n, axis=0)]
            )
            mine, rows = jax.tree.map(fill, (mine, rows))
            answer = _answer(self.shape, tuple(self.metas))
            out.append(np.asarray(answer(self.knots, self.metas, mine, rows))[:n])
        return np.concatenate(out)

    def predict(self, support_x: Any, support_y: Any, query_x: Any) -> np.ndarray:
        """Predictions for some rows of one task, given others of it."""
        own = self.personal(support_x, support_y, [np.arange(len(support_x))])
        return self.answers(own, np.zeros(len(query_x), int), query_x)


def as_input(x: Any) -> np.ndarray:
    """Inputs in the type that jax computes in, float32 as a rule."""
    return np.asarray(x, jnp.result_type(float))


def as_target(shape: Shape, y: Any) -> np.ndarray:
    """Targets as training takes them: class numbers, or numbers within 10 deviations."""
    if shape.classes is not None:
        return np.asarray(y, np.int32)
    return np.clip(as_input(y), -BOUND, BOUND)


def padded(x: np.ndarray, y: np.ndarray, groups: Sequence[Any], width: int, n: int) -> Batch:
    """The groups' first `width` rows as one batch [n, width]; what is empty is masked."""
    at, mask = np.zeros((n, width), int), np.zeros((n, width), x.dtype)
    for i, rows in enumerate(groups):
        some = np.asarray(rows, int)[:width]
        at[i, : len(some)], mask[i, : len(some)] = some, 1
    if not len(x):
        x, y = np.zeros((1, *x.shape[1:]), x.dtype), np.zeros(1, y.dtype)
    return Batch(x[at], y[at], mask)


def by_size(
    x: np.ndarray, y: np.ndarray, groups: Sequence[Any], run: Callable[[np.ndarray, Batch], Any]
) -> Any:
    """`run(tasks, their rows)` for some tasks of like size at a time; its results in their order.

    A batch has empty tasks at its end up to a power of two.
    """
    sizes = np.maximum([len(rows) for rows in groups], 1)
    found: list[Any] = []
    order: list[np.ndarray] = []
    for every in buckets(sizes):
        width = power(int(sizes[every].max()))
        for some in np.split(every, range(CHUNK, len(every), CHUNK)):
            done = run(some, padded(x, y, [groups[i] for i in some], width, power(len(some))))
            found.append(jax.tree.map(lambda leaf, n=some.size: np.asarray(leaf[:n]), done))
            order.append(some)
    back = np.argsort(np.concatenate(order))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[back], *found)


def power(n: int) -> int:
    """The next power of two: few shapes, few compilations."""
    return 1 << max(0, n - 1).bit_length()


def _kinds(shape: Shape, kinds: tuple[str, ...], at: Knots) -> dict[str, Any]:
    return {kind: parts(kind, shape, at) for kind in kinds}


@cache
def _adapt(shape: Shape, kinds: tuple[str, ...]) -> Any:
    """Every task's personal parameters, of all members."""

    def run(at: Knots, metas: dict[str, Meta], batch: Batch) -> PersonalParams:
        made = _kinds(shape, kinds, at)

        def one(samples: Batch) -> PersonalParams:
            each = {
                kind: jax.vmap(lambda meta, p=p: p.adapt.apply(meta, samples, _HYPER))(metas[kind])
                for kind, p in made.items()
            }
            summary = max((p.summary[0] for p in each.values()), key=len)
            return PersonalParams(summary, {kind: p.own for kind, p in each.items()})

        return jax.vmap(one)(jax.tree.map(jnp.asarray, batch))

    return jax.jit(run)


@cache
def _answer(shape: Shape, kinds: tuple[str, ...]) -> Any:
    """Rows' predictions, each by its own task's members, averaged."""

    def run(at: Knots, metas: dict[str, Meta], own: PersonalParams, x: Any) -> Any:
        made = _kinds(shape, kinds, at)

        def one(mine: PersonalParams, row: Any) -> Any:
            def member(kind: str, meta: Meta, p: Any) -> Any:
                empty = made[kind].adapt.start(meta).summary
                params = made[kind].adapt.merge(meta, Summed(p, mine.summary[: len(empty)]))
                return made[kind].answer(params, row[None])[0]

            each = [
                jax.vmap(lambda meta, p, kind=kind: member(kind, meta, p))(
                    metas[kind], mine.heads[kind]
                )
                for kind in kinds
            ]
            return jnp.mean(jnp.concatenate(each), axis=0)

        return jax.vmap(one)(own, x)

    return jax.jit(run)
